"""What fails in Spark's Python workers is told to its last line."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eddy.connectors.spark.frames import Frames, error_of, spark_errors
from eddy.errors import ConnectorError, DataError, EddyError

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in step\n    raise it\n    ^^^^^\n'
BEFORE = ["", "An exception was thrown from the Python worker:\n"]
CHAINED = f"{TRACE}KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n"
AFTER = [
    "",
    "\n",
    "\n SQLSTATE: 38000",
    "\n\n\tat org.apache.spark.api.A.b(A.scala:1)\n\tat java.base/X",
    "\n\nDriver stacktrace:\nx",
]
LINES = ["one", "  two", "\tat home", "", "Traceback of the user", "E: x", "the last"]


@pytest.mark.parametrize("seed", range(40))
def test_the_whole_message_of_a_worker_is_told(seed: int) -> None:
    rng = random.Random(seed)
    said = "step 'x': " + "\n".join([*rng.choices(LINES, k=rng.randrange(5)), "the last"])
    before = rng.choice(BEFORE) + rng.choice(["", CHAINED])
    found = error_of(f"{before}{TRACE}eddy.errors.DataError: {said}{rng.choice(AFTER)}")
    assert (type(found), str(found)) == (DataError, said)
    found = error_of(f"{before}{TRACE}ValueError: {said}{rng.choice(AFTER)}")
    assert isinstance(found, ConnectorError)
    assert str(found).startswith(f"spark: a Python worker raised ValueError: {said}; ")


def fails(batches: Any) -> Iterator[Any]:
    import nothing_that_is_installed  # type: ignore[import-not-found] # noqa: F401

    yield from batches


def refuses(batches: Any) -> Iterator[Any]:
    raise DataError("step 'x': first\n\n\tat home\n  last")
    yield from batches


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [(fails, ConnectorError, "No module named 'nothing_that"), (refuses, DataError, "'x': first\n\n\tat home\n  last")],
)
def test_what_a_worker_of_spark_raises_is_told(
    spark: Any, function: Callable[..., Any], kind: type[EddyError], said: str
) -> None:
    frames = Frames(spark)
    frame = frames.through(frames.rows([(1,)], "n long"), function, "n long")
    with pytest.raises(kind) as raised, spark_errors():
        frame.collect()
    assert said in str(raised.value)
    assert "SQLSTATE" not in str(raised.value)
