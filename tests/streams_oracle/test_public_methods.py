"""`docs/kafka-streams-methods.md` has each public method of Kafka Streams, and what it says of eddy is there."""

import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import eddy
from eddy.driver import InputTopic, OutputTopic
from eddy.topology.dsl import grouped
from tests.streams_oracle.oracle import Oracle, kafka_streams_version

pytestmark = pytest.mark.xdist_group("streams-oracle")

PAGE = Path(__file__).parents[2] / "docs" / "kafka-streams-methods.md"
NOT_THERE = "not there"
EACH = "*"
Method = tuple[str, str]


class Line(NamedTuple):
    """A line of a table: classes and methods of Kafka Streams, and the words about eddy."""

    classes: list[str]
    methods: list[str]
    words: str


def read_lines(text: str | None = None) -> list[Line]:
    rows = re.findall(r"^\| (`.*?) \| (`.*?) \| (.*) \|$", text or PAGE.read_text(), re.MULTILINE)
    return [Line(quoted(classes), quoted(methods), words) for classes, methods, words in rows]


def quoted(text: str) -> list[str]:
    return re.findall(r"`(.+?)`", text)


def test_each_public_method_has_one_line(oracle: Oracle) -> None:
    methods = oracle.public_methods
    named: list[Method] = [
        (owner, method) for line in read_lines() for owner in line.classes for method in line.methods if method != EACH
    ]
    whole = [owner for line in read_lines() if line.methods == [EACH] for owner in line.classes]
    assert sorted(set(named) - methods) == []
    assert sorted(set(whole) - {owner for owner, _ in methods}) == []
    assert sorted(method for method in methods - set(named) if method[0] not in whole) == []
    assert len(set(whole)) == len(whole)
    several = {method for method in named if named.count(method) > 1}
    assert sorted(several) == []
    assert f"Kafka Streams {kafka_streams_version()}" in PAGE.read_text()


def test_what_is_named_of_eddy_is_there() -> None:
    missing = [name for line in read_lines() for name in quoted(line.words.split(NOT_THERE)[0]) if not is_there(name)]
    assert missing == []


def test_how_many_are_there_is_counted(oracle: Oracle) -> None:
    sections = PAGE.read_text().split("\n## ")
    sought = [read_lines(section) for section in sections if section.startswith(("The DSL", "Windows"))]
    lines = [line for section in sought for line in section]
    methods = {
        (owner, method): not line.words.startswith(NOT_THERE)
        for line in sorted(lines, key=lambda line: line.methods != [EACH])
        for owner in line.classes
        for method in (methods_of(oracle, owner) if line.methods == [EACH] else line.methods)
    }
    said = f"Of {len(methods)} methods of the DSL and of windows\n{sum(methods.values())} are there."
    assert said in sections[0]


def methods_of(oracle: Oracle, owner: str) -> list[str]:
    return [method for other, method in oracle.public_methods if other == owner]


def is_there(name: str) -> bool:
    """`name` is an argument with "=", an attribute of a public type, a name of the package, a command or a text."""
    if re.fullmatch(r"\w+=", name):
        return name[:-1] in arguments()
    if name.startswith(("eddy ", '"')):
        return True
    if re.fullmatch(r"[a-z_]+", name):
        return name in attributes()
    try:
        functools.reduce(getattr, name.removeprefix("eddy.").split("."), eddy)
    except AttributeError:
        return False
    return True


def public_types() -> Iterator[Any]:
    yield from (getattr(eddy, name) for name in eddy.__all__)
    yield from (InputTopic, OutputTopic, *(getattr(grouped, name) for name in grouped.__all__))


@functools.cache
def attributes() -> set[str]:
    """The methods of eddy's public types, and what one of its processors has."""
    return {name for kind in public_types() for name in dir(kind) if not name.startswith("_")} | {"init", "process"}


@functools.cache
def arguments() -> set[str]:
    functions = [kind for kind in public_types() if callable(kind)]
    functions += [getattr(kind, name) for kind in public_types() for name in dir(kind) if not name.startswith("_")]
    return {name for function in functions if callable(function) for name in parameters(function)}


def parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
