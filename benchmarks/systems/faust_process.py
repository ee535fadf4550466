"""An app of Faust in a process of its own, and where it answers."""

import os
import sys
from typing import Any, TextIO

import faust

__all__ = ["answers", "app_named", "run"]


def answers() -> TextIO:
    """Where stdout went; from now on it goes to stderr, for Faust prints a table of its settings."""
    said = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return said


def app_named(name: str, bootstrap: str, state_dir: str, **settings: Any) -> faust.App:
    """An app that reads its topics from their first offsets."""
    return faust.App(
        name,
        broker=f"kafka://{bootstrap}",
        topic_disable_leader=True,
        web_enabled=False,
        worker_redirect_stdouts=False,
        consumer_auto_offset_reset="earliest",
        datadir=state_dir,
        **settings,
    )


def run(app: faust.App) -> None:
    """Run its worker until SIGTERM."""
    sys.argv = [sys.argv[0], "worker", "-l", "error", "--without-web"]
    app.main()
