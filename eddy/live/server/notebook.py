"""Shows a live view in a notebook: its rows as an HTML table with nested tables, and as a pandas DataFrame.

In Jupyter a thread draws the table of a cell again while the view is open. It is not the live server's thread, which
must not wait for a browser.
"""

import html
import importlib
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["frame_of", "html_of", "keep_shown"]

_MAX_ROWS, _MAX_ALL, _MAX_DEPTH = 100, 1_000, 12
_PAUSE_S, _LOOK_S = 0.2, 1.0


def html_of(rows: Any, told: str) -> str:
    """Return rows as HTML: at most 100 of each list and 1,000 in all. `told` is a line of text below them."""
    return f"<div>{_shown(rows, 0, [_MAX_ALL])}<small>{html.escape(told)}</small></div>"


def _shown(value: Any, depth: int, left: list[int]) -> str:
    """Return a value as HTML; `left` has the number of rows that may still be shown."""
    is_rows = isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    if isinstance(value, dict):
        value, is_rows = [value], True
    if not is_rows:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return html.escape(text)
    rows = value[: min(_MAX_ROWS, left[0])]
    if depth >= _MAX_DEPTH or not rows:
        return f"… {len(value):,} rows"
    left[0] -= len(rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_shown(row[c], depth + 1, left) if c in row else ''}</td>" for c in columns) + "</tr>"
        for row in rows
    )
    more = f"<tr><td>… {len(value) - len(rows):,} more rows</td></tr>" if len(value) > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{more}</tbody></table>"


def frame_of(rows: Any) -> Any:
    """Return a DataFrame with the columns of the rows; nests are lists in it. Raises: ImportError without pandas."""
    pandas = importlib.import_module("pandas")  # pandas is in the extra `spark`, or the user has installed it
    if isinstance(rows, list):
        return pandas.DataFrame(rows)
    found: Iterable[Any] = [] if rows is None else [rows if isinstance(rows, dict) else {"value": rows}]
    return pandas.DataFrame(list(found))


def keep_shown(
    drawn: Callable[[], str],
    is_open: Callable[[], bool],
    listen: Callable[[Callable[[Any], None]], Callable[[], None]],
    has_failed: Callable[[], bool] = lambda: False,
) -> None:
    """Show HTML in the running cell. While `is_open`, draw it again after each patch that `listen` reports.

    After the end, it is drawn once more only if the view `has_failed`; then it shows the error.
    """
    display = importlib.import_module("IPython.display")
    changed = threading.Event()
    stop = listen(lambda patch: changed.set())
    handle = display.display(display.HTML(drawn()), display_id=True)
    if handle is None:  # not in a notebook
        stop()
        return
    pause = threading.Event()

    def follow() -> None:
        while is_open():
            if changed.wait(_LOOK_S):
                changed.clear()  # before the rows are read, so that a patch that arrives meanwhile is drawn next
                handle.update(display.HTML(drawn()))
                pause.wait(_PAUSE_S)
        stop()
        if has_failed():
            handle.update(display.HTML(drawn()))

    threading.Thread(target=follow, name="eddy-notebook", daemon=True).start()
