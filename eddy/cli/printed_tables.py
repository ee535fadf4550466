"""Tables on stdout: as wide as the terminal; in a file or a pipe, as wide as their contents."""

import sys

from rich.console import Console
from rich.table import Table

__all__ = ["new_table", "print_table"]

_NO_LIMIT = 10_000


def new_table(*columns: str, numbers: int = 0) -> Table:
    """Return a table with these columns, the last `numbers` of which are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        right = index >= len(columns) - numbers
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


class _TableConsole(Console):
    """Prints on stdout. If the reader of stdout has ended, the command handles it."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, since the console would exit with the status of a failure."""
        raise BrokenPipeError


def print_table(table: Table) -> None:
    """Print a table."""
    width = None if sys.stdout.isatty() else _NO_LIMIT
    _TableConsole(width=width, highlight=False, markup=False).print(table)
