"""One request to a table server, for commands whose answer only a running server knows."""

import json
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from eddy.errors import ConfigurationError, ConnectorError, QueryError
from eddy.serve.endpoint import token_of

__all__ = ["asked"]


def asked(server: str, path: str, parameters: list[tuple[str, str]], token_file: Path | None, timeout_s: float) -> Any:
    """Return the JSON that a server answers to a GET request.

    Raises: ConfigurationError if `server` is not an address; QueryError if the server refuses; ConnectorError if it
    does not answer within `timeout_s`.
    """
    if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).netloc:
        raise ConfigurationError(f"server {server[:200]!r}: no address; one such as http://localhost:8080 is needed")
    request = Request(f"{server.rstrip('/')}{path}?{urlencode(parameters)}")
    if token_file is not None:
        request.add_header("Authorization", f"Bearer {token_of(token_file).decode()}")
    try:
        with urlopen(request, timeout=timeout_s) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise QueryError(f"server {server}: {_reason(error)}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConnectorError(
            f"server {server}: no answer: {reason}; a running one is needed: eddy serve, or eddy run --http"
        ) from error


def _reason(error: HTTPError) -> str:
    """Return the text of a refusal: the error that the server sends, or its first lines."""
    text = error.read(1 << 16).decode(errors="replace").strip()
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {text[:200] or error.reason}"
