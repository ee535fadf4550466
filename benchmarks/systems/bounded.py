"""A table of long values and a count of its groups, whose states are far larger than the cache given.

    bounded LOG_AND_STATE OUT CACHE_BYTES KEYS UPDATES

First every key is inserted, in random order, then random keys get new values. Written to OUT: each
group's count, and each key with its value, as the tables have them at the end.
"""

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random

import eddy
from benchmarks.systems.process import report, resident_bytes, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec

GROUPS = 1_000
_BATCH = 5_000


def value_of(key: int, version: int) -> str:
    """A value of 390 characters; what group it is of comes first."""
    digest = sha256(f"{key} {version}".encode()).hexdigest()
    return f"{int(digest[:8], 16) % GROUPS:05}:{digest * 6}"


def records(keys: int, updates: int) -> Iterator[tuple[int, int]]:
    """(key, version): every key once, then some of them again."""
    random, versions = Random(19), [0] * keys
    order = list(range(keys))
    random.shuffle(order)
    yield from ((key, 0) for key in order)
    for _ in range(updates):
        key = random.randrange(keys)
        versions[key] += 1
        yield key, versions[key]


def topology() -> eddy.Topology:
    """Items by key, and how many of them there are in each group."""
    made = eddy.Topology("bounded")
    items = made.table("items", key=eddy.String, value=eddy.String)
    items.group_by(lambda key, value: (value[:5], value), key=eddy.String).count("groups")
    return made


def main(folder: str, out: str, cache_bytes: int, keys: int, updates: int) -> None:
    """Feed and step in turn; note the resident memory after every epoch."""
    log = LocalLog(Path(folder) / "log")
    log.create_topics([TopicSpec("items", 1)])
    config = eddy.Config(state_dir=Path(folder) / "state", cache_bytes=cache_bytes, max_epoch_records=_BATCH)
    worker, producer, feed = eddy.Worker(topology(), log, config), log.producer(None), records(keys, updates)
    start, samples, fed = settle(), [], 0
    while part := list(islice(feed, _BATCH)):
        names = [f"k{key:08}".encode() for key, _ in part]
        producer.begin()
        producer.send("items", 0, names, [value_of(*row).encode() for row in part], [0] * len(part))
        producer.commit({}, None)
        worker.run_until_idle()
        fed += len(part)
        samples.append((fed, resident_bytes()))
    report(start, records=fed, samples=samples)
    states = worker.circuit.states
    tables = {name: dict(states[name].items()) for name in ("items", "groups")}  # type: ignore[attr-defined]
    Path(out).write_text(json.dumps(tables))
    producer.close()
    worker.close()
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
