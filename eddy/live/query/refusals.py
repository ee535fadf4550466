"""The errors of requests for named queries; each has a stable code and an HTTP status."""

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
    """The caller may not read this table, or may not request this query."""

    code = "QUERY_FORBIDDEN"


class QueryLimitError(QueryError):
    """A caller exceeds a limit of the server: on queries, connections, or rows."""

    code = "QUERY_LIMIT"


class QueryFailedError(QueryError):
    """A function of the application's author has failed; the server's log has the error."""

    code = "QUERY_FAILED"
