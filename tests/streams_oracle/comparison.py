"""Compares what both engines make of a case with what their rules say, and cuts a case that differs down."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.streams_oracle import eddy_rules, in_eddy, streams_rules
from tests.streams_oracle.case import GLOBAL, Answer, Case, Step, inputs_of, reads_global_table
from tests.streams_oracle.functions import Key
from tests.streams_oracle.oracle import Oracle

__all__ = ["Comparison", "differences", "shortened"]

Engine = Callable[[Case], Answer]


class Comparison:
    """Compares cases, and counts: steps and records by whether the engines agree on them, and the steps drawn."""

    def __init__(self, oracle: Oracle) -> None:
        self._pairs = [(oracle.answer, streams_rules.answer), (in_eddy.answer, eddy_rules.answer)]
        self.seen: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()

    def wrong(self, case: Case) -> str:
        """The smallest part of the case in which an engine does not follow its rules; empty if both do."""
        answers = []
        for engine, rules in self._pairs:
            answer = engine(case)
            if answer != rules(case):
                return _told(shortened(case, partial(differs, engine, rules)), engine, rules)
            answers.append(answer)
        self._count(case, *answers)
        return ""

    def _count(self, case: Case, streams: Answer, eddy: Answer) -> None:
        for step, theirs, ours in zip(case.steps, streams.out, eddy.out, strict=True):
            if theirs:
                self.steps[step["op"]] += 1
                self.seen[
                    "steps that both write the same of" if theirs == ours else "steps that the rules differ on"
                ] += 1
                self.seen["records of Kafka Streams"] += sum(map(len, theirs.values()))
                self.seen["records of eddy"] += sum(map(len, ours.values()))
        self.seen["cases"] += 1

    def told(self) -> str:
        """All counts, one a line."""
        return "\n".join(f"{number:7} {what}" for what, number in (self.seen + self.steps).items())


def differs(engine: Engine, rules: Engine, case: Case) -> bool:
    """Whether an engine does not follow its rules."""
    return engine(case) != rules(case)


def shortened(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The case without the steps and records that it fails without."""
    at = len(case.steps) - 1
    while at >= 0:
        if (cut := _without_step(case, at)) is not None and fails(cut):
            case = cut
        at -= 1
    at = len(case.records) - 1
    while at >= 0:
        cut = Case(case.steps, case.records[:at] + case.records[at + 1 :])
        if cut.records and fails(cut):
            case = cut
        at -= 1
    return case


def _without_step(case: Case, at: int) -> Case | None:
    """The case without a step, its topic's records included; None if a step reads it, or nothing remains."""
    step = case.steps[at]
    if len(case.steps) == 1 or any(at in (*inputs_of(other), other.get("shares")) for other in case.steps):
        return None

    def moved(number: int) -> int:
        return number - (number > at)

    steps = []
    for other in case.steps[:at] + case.steps[at + 1 :]:
        sides: Step = {side: moved(other[side]) for side in ("of", "with", "shares") if side in other}
        new: Step = {**other, **sides}
        if other["op"] == "cogroup":
            new["parts"] = [{**part, "of": moved(part["of"])} for part in other["parts"]]
        steps.append(new)
    gone = {step["topic"]} if "topic" in step else set()
    if not any(map(reads_global_table, steps)):
        gone.add(GLOBAL)
    records = [record for record in case.records if record[0] not in gone]
    return Case(steps, records) if records else None


class Difference(NamedTuple):
    """Of a step and a key: what the engine has written, and what its rules say."""

    step: int
    key: object
    written: object
    ruled: object


def differences(answer: Answer, rules: Answer) -> list[Difference]:
    """Where two answers differ."""
    found: list[Difference] = []
    for number, (one, other) in enumerate(zip(answer.out, rules.out, strict=True)):
        keys: dict[Key, None] = dict.fromkeys([*one, *other])
        found += [
            Difference(number, key, one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)
        ]
    if answer.stores != rules.stores:
        found.append(Difference(-1, "stores", answer.stores, rules.stores))
    return found


def _told(case: Case, engine: Engine, rules: Engine) -> str:
    lines = [f"{case!r}", *map(str, differences(engine(case), rules(case)))]
    return "\n".join(lines)
