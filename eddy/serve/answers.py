"""Answers over HTTP: JSON with its version, and errors with their HTTP status."""

import hashlib
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from eddy.errors import ConnectorError, EddyError, NotReadyError, QueryError, StateError, TableNotServedError
from eddy.json_text import encode
from eddy.live.query.refusals import (
    ForbiddenError,
    QueryFailedError,
    QueryLimitError,
    UnknownQueryError,
)

__all__ = ["HEADERS", "answer", "encode", "refused", "tagged", "whole_number"]

HEADERS = {
    "Cache-Control": "private, no-cache",
    "Vary": "Accept, Authorization, Cookie",
    "X-Content-Type-Options": "nosniff",
}
_STATUS: list[tuple[type[EddyError], int]] = [
    (ForbiddenError, 403),
    (TableNotServedError, 404),
    (UnknownQueryError, 404),
    (QueryLimitError, 429),
    (QueryFailedError, 500),
    (NotReadyError, 503),
    (QueryError, 400),
    (StateError, 503),
    (ConnectorError, 503),
]


def answer(content: object, status: bool | int = True, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with `content` as JSON. `status` is an HTTP status, or True for 200 and False for 503."""
    code = (200 if status else 503) if isinstance(status, bool) else status
    return Response(encode(content) + b"\n", code, HEADERS | (headers or {}), "application/json")


async def refused(request: Request, error: Exception) -> Response:
    """Return the answer for one of eddy's errors."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status in {429, 503} else {}
    return answer({"code": getattr(error, "code", "EDDY"), "error": str(error)}, status, headers)


def whole_number(request: Request, name: str) -> int | None:
    """Return a parameter that is a whole number; None if it is missing. Raises: QueryError."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isdecimal() and len(text) < 10):
        raise QueryError(f"{name}={text[:20]!r}; a whole number is needed")
    return int(text)


def tagged(request: Request, content: object, caller: str = "", vary: Iterable[str] = ()) -> Response:
    """Return an answer with content as JSON and an `ETag`, or 304 for a caller whose cache has this content.

    The tag is a hash of the content and the caller, so that one caller's tag is of no use to another. `vary` has
    further headers on which the answer depends.
    """
    body = encode(content) + b"\n"
    digest = hashlib.blake2b(body, digest_size=12, key=hashlib.blake2b(caller.encode(), digest_size=32).digest())
    tag = f'"{digest.hexdigest()}"'
    headers = HEADERS | {"ETag": tag, "Vary": ", ".join([HEADERS["Vary"], *vary])}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")
