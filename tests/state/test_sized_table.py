"""Sized tables: the number and the bytes of the rows in each partition, whatever is undone and whoever has written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eddy.serde import String
from eddy.state.memory import MemoryStore
from eddy.state.sized_table import SizedTable
from eddy.state.spec import StateSpec
from eddy.state.table_state import Table

SPEC = StateSpec("t", "table", String, String, 3, lambda data, count: len(data) % count)
keys = st.sampled_from(["", "a", "bb", "ccc", "dddd", "é"])
steps = st.lists(
    st.one_of(
        st.dictionaries(keys, st.sampled_from([None, "", "x", "value"]), min_size=1),
        st.sampled_from(["commit", "undo", "reopen", "another writes"]),
    )
)


def write(table: Table[str, str], store: MemoryStore) -> None:
    store.write(SPEC.stored(table.changes()))
    table.commit()


def sizes(rows: dict[str, str]) -> list[tuple[int, int]]:
    here = [[pair for pair in rows.items() if len(pair[0].encode()) % 3 == partition] for partition in range(3)]
    return [(len(pairs), sum(len(part.encode()) for pair in pairs for part in pair)) for pairs in here]


@given(steps, st.integers(0, 2))
def test_sizes_are_those_of_the_rows(steps: list[Any], asked_at_first: int) -> None:
    store, rows, committed = MemoryStore(), dict[str, str](), dict[str, str]()
    table = SizedTable[str, str](SPEC, store)
    for step in steps:
        if isinstance(step, dict):
            table.put_many(step, table.get_many(list(step)))
            rows = {key: value for key, value in (rows | step).items() if value is not None}
        elif step == "undo":
            table.rollback()
            rows = committed
        else:
            write(table, store)
            if step == "another writes":
                other = Table[str, str](SPEC, store)
                other.put_many({"a": "other"}, other.get_many(["a"]))
                write(other, store)
                rows = rows | {"a": "other"}
                table.forget()
            if step == "reopen":
                table = SizedTable[str, str](SPEC, store)
            committed = rows
        assert table.size(asked_at_first) == sizes(rows)[asked_at_first]
    assert [table.size(partition) for partition in range(3)] == sizes(rows)
