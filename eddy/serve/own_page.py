"""Serves a page of the user's own beside eddy's page: the files of a folder, at /page/.

These files are open to all, like the files of eddy's own page, since a browser loads them without a token. Names that
begin with a dot, and links out of the folder, are not found.
"""

from pathlib import Path

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from eddy.errors import ConfigurationError

__all__ = ["check_own_page", "is_of_own_page", "with_own_page"]

_AT = "/page"


def check_own_page(folder: Path | None) -> None:
    """Check that the folder, if there is one, has an index.html. Raises: ConfigurationError."""
    if folder is not None and not (folder / "index.html").is_file():
        raise ConfigurationError(f"page {folder}: it has no index.html; a folder with one is needed: --page DIR")


def is_of_own_page(path: str) -> bool:
    """Whether the path of a request is the path of a file of the user's own page."""
    return path.startswith(f"{_AT}/") or path == _AT


def with_own_page(app: ASGIApp, folder: Path | None) -> ASGIApp:
    """Return the application, with the files of a folder if there is one."""
    if folder is None:
        return app
    files = Starlette(routes=[Mount(_AT, StaticFiles(directory=folder, html=True))])

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        answer = files if is_of_own_page(path) else app
        if answer is files and any(part.startswith(".") for part in path.split("/")):
            await PlainTextResponse("there is no such file\n", 404)(scope, receive, send)
        else:
            await answer(scope, receive, send)

    return either
