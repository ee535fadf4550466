"""Why a caller does not get a named query: each reason has a stable code, and a status of HTTP."""

from eddy.errors import QueryError

__all__ = [
    "ForbiddenError",
    "QueryArgumentError",
    "QueryFailedError",
    "QueryLimitError",
    "UnknownQueryError",
]


class UnknownQueryError(QueryError):
    """There is no query of that name."""

    code = "QUERY_UNKNOWN"


class QueryArgumentError(QueryError):
    """An argument is missing, unknown, or of another type."""

    code = "QUERY_ARGUMENT"


class ForbiddenError(QueryError):
    """The caller may not read this table, or ask this query."""

    code = "QUERY_FORBIDDEN"


class QueryLimitError(QueryError):
    """More than a server gives one caller: queries, connections, or rows."""

    code = "QUERY_LIMIT"


class QueryFailedError(QueryError):
    """The author's function has failed; the log of the server says how."""

    code = "QUERY_FAILED"
