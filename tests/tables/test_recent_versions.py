"""Earlier versions of a table server are read as they were, for as long as their rows are kept."""

import random

import pytest

from eddy.connectors.log import TopicPartition
from eddy.errors import NotReadyError, QueryError
from eddy.state.memory import MemoryStore
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version

PART = TopicPartition("t", 0)


class Served:
    """Rows that are served, and the rows of all versions in plain dicts."""

    def __init__(self, recent_bytes: int) -> None:
        self.rows = ServedRows(MemoryStore(), ["t"], recent_bytes)
        self.rows.say("")
        self.versions: list[tuple[Version, dict[bytes, bytes]]] = []
        self.put({})

    def put(self, changes: dict[bytes, bytes | None]) -> None:
        offset = len(self.versions)
        version = Version({"t": [offset]}, {"in": [offset]}, exact=True, number=offset)
        keyed = {b"t\x00" + key: value for key, value in changes.items()}
        self.rows.apply({"t": keyed}, {PART: offset}, {}, version, [])
        merged = (self.versions[-1][1] if self.versions else {}) | keyed
        self.versions.append((version, {key: value for key, value in merged.items() if value is not None}))

    def read(self, version: Version) -> tuple[dict[bytes, bytes], int]:
        snapshot = self.rows.former(version.token)
        try:
            assert snapshot.version is version
            return dict(snapshot.between(b"t\x00", b"t\x01", 1_000)), snapshot.counts["t"]
        finally:
            snapshot.close()


@pytest.mark.parametrize("seed", range(20))
def test_each_version_from_the_earliest_on_is_read_as_it_was(seed: int) -> None:
    draw = random.Random(seed)
    bound = draw.choice([10_000, 40_000, 1 << 20])
    served = Served(bound)
    keys = [b"%d" % number for number in range(12)]
    held = None
    for turn in range(60):
        changed = draw.sample(keys, draw.randrange(len(keys)))
        served.put({key: draw.choice([None, b"%d" % turn, b"x" * 500]) for key in changed})
        earliest = served.rows.earliest()
        assert earliest is not None
        first = next(at for at, (version, _) in enumerate(served.versions) if version is earliest.version)
        if held is None and draw.random() < 0.1:  # a snapshot of an earlier version is read while others follow
            version, rows = draw.choice(served.versions[first:])
            held = served.rows.former(version.token), rows
        for version, rows in served.versions[first:]:
            assert served.read(version) == (rows, len(rows))
        for version, _ in served.versions[:first]:
            with pytest.raises(
                QueryError, match=rf"not kept here; one from {earliest.version.token} of \d{{4}}-.* UTC on"
            ):
                served.rows.former(version.token)
    assert (first == 0) == (bound == 1 << 20)
    if held is not None:
        assert dict(held[0].between(b"t\x00", b"t\x01", 1_000)) == held[1]


def test_versions_before_a_table_is_read_anew_are_not_kept() -> None:
    served = Served(1 << 20)
    served.put({b"a": b"1"})
    served.put({b"a": b"2"})
    served.rows.forget("t", [PART], "new")
    assert served.rows.earliest() is None
    with pytest.raises(NotReadyError, match="read anew"):
        served.rows.former(served.versions[1][0].token)
    served.versions.append((served.versions[-1][0], {}))
    served.put({b"b": b"3"})
    served.rows.say("")
    assert served.rows.earliest().version is served.versions[-1][0]  # type: ignore[union-attr]
    with pytest.raises(QueryError, match="not kept here"):
        served.rows.former(served.versions[1][0].token)


def test_without_memory_only_the_present_version_is_kept() -> None:
    served = Served(0)
    served.put({b"a": b"1"})
    served.put({b"a": b"2"})
    assert served.read(served.versions[2][0]) == ({b"t\x00a": b"2"}, 1)
    with pytest.raises(QueryError, match="not kept here"):
        served.read(served.versions[1][0])


def test_a_version_before_the_first_cut_is_not_kept() -> None:
    """Its inputs are not known: a trace would have no records of streams at it."""
    served = Served(1 << 20)
    served.rows = ServedRows(MemoryStore(), ["t"], 1 << 20)
    served.rows.say("")
    early = Version({"t": [1]}, {}, exact=False, number=1)
    served.rows.apply({"t": {b"t\x00a": b"1"}}, {PART: 1}, {}, early, [])
    assert served.rows.earliest().version is early  # type: ignore[union-attr]
    served.versions.append((early, {b"t\x00a": b"1"}))
    served.put({b"a": b"2"})
    with pytest.raises(QueryError, match="not kept here"):
        served.rows.former(early.token)
    assert served.rows.earliest().version is served.versions[-1][0]  # type: ignore[union-attr]
