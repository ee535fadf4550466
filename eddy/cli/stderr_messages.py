"""Messages on stderr: lines for people, or JSON lines for machines."""

import datetime
import logging
import sys
import traceback
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.text import Text

__all__ = ["LogFormat", "messages_console", "show_messages"]

LogFormat = Literal["text", "json"]
_HTTP_CLIENTS = ("httpx", "httpx2")
"""Loggers that report each request, such as those to a schema registry; they are shown from `debug` on."""


class _Messages(Console):
    """Prints on stderr. If its reader has ended, the work continues without messages."""

    def on_broken_pipe(self) -> None:
        """Ignore a broken pipe: the console would otherwise exit in the middle of an epoch."""
        self.quiet = True


class _MessageHandler(logging.Handler):
    """Prints through a console, so that a live line remains below the messages."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self._console.print(Text(self.format(record)), soft_wrap=True)


class _Json(logging.Formatter):
    """Formats each log record as one JSON object; `extra={"fields": …}` adds fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line of JSON."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return msgspec.json.encode(line, enc_hook=repr).decode()


def messages_console() -> Console:
    """Return the console for messages to people."""
    return _Messages(stderr=True, highlight=False)


def show_messages(console: Console, form: LogFormat, level: str) -> None:
    """Show the log messages of eddy and of the author's functions, from `level` on."""
    handler: logging.Handler = _MessageHandler(console)
    if form == "json":
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Json())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _HTTP_CLIENTS:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else logging.WARNING)
    logging.captureWarnings(True)
