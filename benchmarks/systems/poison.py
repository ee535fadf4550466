"""A worker over facts of which some cannot be processed, and are left out.

    poison FOLDER|BOOTSTRAP WHERE BAD FACTS

The log is the embedded one in FOLDER, or that of the broker at BOOTSTRAP. WHERE names what fails: a `function` that
maps the facts, the `adder` of their sums, or the function of a `join`, whose rows do not tell their records.
"""

import logging
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import eddy
from benchmarks.systems.process import report, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicPartition, TopicSpec

_GROUPS = 1_000


def checked(n: int) -> int:
    """The number, if it is one that can be processed."""
    if n < 0:
        raise ValueError("below 0")
    return n


def mapped(facts: Any) -> Any:
    """Facts are checked before they are added up."""
    numbers = facts.map_values(checked, value=eddy.Int64)
    return numbers.group_by_key().reduce(lambda total, n: total + n, "sums")


def added(facts: Any) -> Any:
    """Facts are checked as they are added."""
    return facts.group_by_key().aggregate(lambda: 0, lambda _, n, total: total + checked(n), "sums", eddy.Int64)


def joined(facts: Any) -> Any:
    """Sums are checked as they are joined with counts of the same facts."""
    least = facts.group_by_key().aggregate(lambda: 0, lambda _, n, total: min(total, n), "least", eddy.Int64)
    sums = facts.group_by_key().reduce(lambda total, n: total + n, "all")
    return sums.join(least, lambda total, least: total + checked(least), name="sums", value=eddy.Int64)


PROGRAMS: dict[str, Callable[[Any], Any]] = {"function": mapped, "adder": added, "join": joined}


def numbers_of(facts: int, bad: int) -> list[int]:
    """The values of `facts` facts; `bad` of them, at equal distances, are -1, which `checked` refuses."""
    return [-1 if bad and n % (facts // bad) == facts // bad // 2 else n for n in range(facts)]


def expected(facts: int, bad: int) -> dict[str, int]:
    """The sums of the good ones."""
    sums: dict[str, int] = {}
    for at, n in enumerate(numbers_of(facts, bad)):
        if n >= 0:
            sums[key_of(at)] = sums.get(key_of(at), 0) + n
    return sums


def key_of(at: int) -> str:
    """The group of a fact."""
    return f"g{at % _GROUPS}"


def opened(where: str) -> Log:
    """The log of a folder, or of a broker."""
    if ":" not in where:
        return LocalLog(Path(where) / "log")
    from eddy.connectors.kafka import KafkaLog, KafkaSettings

    return KafkaLog(KafkaSettings.of(where))


def main(where: str, what: str, bad: int, facts: int) -> None:
    """Write the facts, then time the worker until it is idle; check the sums and the number left out."""
    logging.getLogger("eddy").setLevel(logging.ERROR)
    log, name = opened(where), f"poison-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-facts", f"{name}-sums"
    kept = {"retention.ms": "-1"}  # records of 1970 are old
    log.create_topics([TopicSpec(source, 1, kept), TopicSpec(sink, 1, kept)])
    producer = log.producer(None)
    producer.begin()
    keys = [key_of(at).encode() for at in range(facts)]
    producer.send(source, 0, keys, [eddy.Int64.encode(n) for n in numbers_of(facts, bad)], [0] * facts)
    producer.commit({}, None)
    producer.close()
    topology = eddy.Topology(name)
    table = PROGRAMS[what](topology.stream(source, key=eddy.String, value=eddy.Int64))
    table.to(sink, key=eddy.String, value=eddy.Int64)
    worker = eddy.Worker(topology, log, eddy.Config(on_error="skip"))
    while not worker.positions.entry.positions:
        worker.step(0.1)
    start = settle()
    worker.run_until_idle()
    done = worker.statistics
    report(start, aborts=done.aborts, epochs=done.epochs)
    at = TopicPartition(sink, 0)
    written = log.read(at, 0, log.end_offsets([at])[at], 1 << 30)
    table_now = {k.decode(): eddy.Int64.decode(v) for k, v in zip(written.keys, written.values, strict=True) if k and v}
    worker.close()
    log.close()
    if done.skipped != bad or table_now != expected(facts, bad):
        raise SystemExit(f"{done.skipped} left out of {bad}, or sums differ")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
