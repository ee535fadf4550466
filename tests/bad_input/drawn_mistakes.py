"""Mistakes in documented calls, drawn by a seed: `python -m tests.bad_input.drawn_mistakes SEED COUNT` prints them.

The kinds, over the public calls of `test_mutated_calls.py` and `newer_calls.py`:

    type     an argument of another kind
    order    positional arguments in another order, of any two, neighbours or not
    name     a keyword with a letter too few, too many or exchanged
    count    a positional argument too many, or one that is needed left out
    place    a call that fits elsewhere: on what is closed or not open yet, with a part of another topology
    extra    an entry point whose packages are not installed

An answer is right if it is an error of eddy that names the argument or the call, the value and the fix; for a name or a
number of arguments that the signature does not have it is Python's own TypeError, which names the call, and whose
traceback ends at the user's file and line.
"""

import inspect
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import eddy
from tests.bad_input.newer_calls import NEWER, NEWER_POOL
from tests.bad_input.test_mutated_calls import CALLS, POOL, Mutation, Place, fault, told

__all__ = ["KINDS", "Mistake", "drawn"]

S = eddy.String
_ALL = [*CALLS, *NEWER]


class Mistake(NamedTuple):
    """A call with a mistake of this kind; `answer` returns what is wrong with its answer, or an empty text."""

    kind: str
    what: str
    answer: Callable[[Place], str]


def of_type(draw: random.Random) -> Mistake:
    calls, pool = draw.choice([(CALLS, POOL), (NEWER, NEWER_POOL)])
    call = draw.choice([call for call in calls if call.arguments])
    argument, (_, fits) = draw.choice([*call.arguments.items()])
    wrong = [value for value in pool if not fits(value)]
    if not wrong:
        return of_type(draw)
    value = draw.choice(wrong)
    mutation = Mutation(call, f"{argument}={value!r:.40}", {argument: value})
    return Mistake("type", str(mutation), lambda place: told(place, mutation))


def of_order(draw: random.Random) -> Mistake:
    """Two positional arguments exchanged that do not fit each other's places."""
    call = draw.choice([call for call in _ALL if len(call.arguments) > 1])
    one, other = sorted(draw.sample(range(len(call.arguments)), 2))
    names = [*call.arguments]
    mutation = Mutation(call, f"{names[one]} and {names[other]} exchanged", {}, "", (names[one], names[other]))

    def answer(place: Place) -> str:
        if not mutation.is_one(place):
            return "fits"
        place.begin()
        positions = _positional(call.method(place))
        if not {names[one], names[other]} <= set(positions):
            return told(place, mutation)
        place.begin()
        given = mutation.arguments(place)
        last = max(positions.index(names[one]), positions.index(names[other]))
        if any(name not in given for name in positions[: last + 1]):
            return told(place, mutation)
        arguments = [given.pop(name) for name in positions[: last + 1]]
        return _said(lambda: call.method(place)(*arguments, **given), mutation, mutation.arguments(place))

    return Mistake("order", str(mutation), answer)


def of_name(draw: random.Random) -> Mistake:
    call = draw.choice([call for call in _ALL if call.arguments and not call.any_keyword])
    name = draw.choice([name for name in call.arguments if name not in {"others", "columns", "conditions"}] or [""])
    if not name:
        return of_name(draw)
    at = draw.randrange(len(name))
    typos = [
        name[:at] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
        name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
    ]
    wrong = [typo for typo in typos if typo not in call.arguments and typo.isidentifier()]
    if not wrong:
        return of_name(draw)
    typo = draw.choice(wrong)

    def answer(place: Place) -> str:
        place.begin()
        given = Mutation(call, "", {}).arguments(place)
        method = call.method(place)
        if typo in inspect.signature(method).parameters or _takes_any(method):
            return "fits"
        given[typo] = given.pop(name)
        return _refused_by_python(lambda: method(**given), typo)

    return Mistake("name", f"{call.of}({typo}=)", answer)


def of_count(draw: random.Random) -> Mistake:
    call = draw.choice([call for call in _ALL if call.arguments and not call.any_keyword])
    too_many = draw.random() < 0.5

    def answer(place: Place) -> str:
        place.begin()
        method = call.method(place)
        parameters = inspect.signature(method).parameters
        given = Mutation(call, "", {}).arguments(place)
        if too_many:
            kinds = {parameter.kind for parameter in parameters.values()}
            if inspect.Parameter.VAR_POSITIONAL in kinds or not set(_positional(method)) <= set(given):
                return "fits"
            arguments = [given.pop(name) for name in _positional(method)]
            return _refused_by_python(lambda: method(*arguments, "more", **given), "positional")
        needed = [name for name in given if name in parameters and parameters[name].default is inspect.Parameter.empty]
        needed = [name for name in needed if parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL]
        if not needed:
            return "fits"
        del given[needed[-1]]
        return _refused_by_python(lambda: method(**given), needed[-1])

    return Mistake("count", f"{call.of}({'one too many' if too_many else 'one too few'})", answer)


def of_place(draw: random.Random) -> Mistake:
    name, call, words = draw.choice(PLACES)

    def answer(place: Place) -> str:
        place.begin()
        try:
            with ExitStack() as stack:
                found = call(place, stack)
        except eddy.EddyError as error:
            lacking = [word for word in words if word not in str(error)]
            return f"does not say {lacking}: {error}" if lacking else ""
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return f"no error, but {type(found).__name__}"

    return Mistake("place", name, answer)


def of_extra(draw: random.Random) -> Mistake:
    package, code, extra = draw.choice(EXTRAS)
    return Mistake("extra", f"{package} is absent: {code}", lambda place: without(package, code, extra))


@cache
def without(package: str, code: str, extra: str) -> str:
    """What is wrong with the answer of a program where a package is not installed."""
    blocked = "".join(f"sys.modules['{each}'] = None; " for each in package.split())
    program = f"import sys; {blocked}import eddy\n{code}\n"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent)
    lines = found.stderr.strip().splitlines()
    if found.returncode == 0:
        return "no error"
    last = next((line for line in reversed(lines) if "pip install" in line), lines[-1] if lines else "")
    named = (package.split()[0], package.split()[0].replace("_", "-"))
    lacking = [] if any(name in last for name in named) else [package]
    lacking += [] if f"pip install 'eddy-streams[{extra}]'" in last else [extra]
    return f"does not say {lacking}: {lines[-1] if lines else ''}" if lacking else ""


def closed_log(place: Place, stack: ExitStack) -> Any:
    log = eddy.open_log()
    eddy.create_topics(place.second, log)
    log.close()
    return log


def closed_tables(place: Place, stack: ExitStack) -> Any:
    tables = stack.enter_context(eddy.open_tables(place.second, place.log))
    tables.close()
    return tables


def foreign() -> Any:
    """A table of another topology."""
    return eddy.Topology("other").table("others", key=S, value=S)


PLACES: list[tuple[str, Callable[[Place, ExitStack], Any], list[str]]] = [
    ("rows of a live view before `with`", lambda p, s: p.tables.live(p.nodes).rows, ["not open", "with tables.live"]),
    ("next patch before `with`", lambda p, s: p.tables.live(p.nodes).next(0.1), ["not open", "with tables.live"]),
    ("explain before `with`", lambda p, s: p.tables.live(p.nodes).explain(), ["not open", "with tables.live"]),
    ("a table after tables.close()", lambda p, s: closed_tables(p, s)["nodes"].get("a"), ["closed"]),
    ("a wait after tables.close()", lambda p, s: closed_tables(p, s).wait(), ["closed"]),
    ("a live query after tables.close()", lambda p, s: s.enter_context(closed_tables(p, s).live(p.nodes)), ["closed"]),
    ("a write after log.close()", lambda p, s: closed_log(p, s).write("nodes", {"a": "b"}), ["closed"]),
    ("a worker on a closed log", lambda p, s: eddy.Worker(p.second, closed_log(p, s)), ["closed"]),
    (
        "a join with a table of another topology",
        lambda p, s: p.fresh["stream"].join(foreign(), lambda a, b: a),
        ["other"],
    ),
    ("a union with another topology", lambda p, s: p.fresh["relation"].union(foreign().to_relation()), ["other"]),
    ("a merge with another topology", lambda p, s: p.fresh["stream"].merge(foreign().to_stream()), ["other"]),
    ("a table that is not served", lambda p, s: p.tables["copy"], ["copy", "is needed"]),
    ("a topic that is not the topology's", lambda p, s: p.driver.input("nowhere"), ["nowhere"]),
    ("an output that is not the topology's", lambda p, s: p.driver.output("nowhere"), ["nowhere"]),
    ("a store that is not the topology's", lambda p, s: p.driver.store("nowhere"), ["nowhere"]),
    ("a topic that does not exist", lambda p, s: p.log.write("nowhere", {"a": "b"}), ["nowhere", "create"]),
    ("two steps of one name", lambda p, s: [p.fresh["grouped"].count("n"), p.fresh["grouped"].count("n")], ["'n'"]),
    ("one topic read twice", lambda p, s: p.fresh["topology"].table("s", key=S, value=S), ["'s'"]),
    (
        "a driver of an empty topology",
        lambda p, s: s.enter_context(eddy.TopologyTestDriver(eddy.Topology("e"))),
        ["'e'"],
    ),
]
"""Calls that fit elsewhere, with words that the answer needs."""

EXTRAS = [
    ("confluent_kafka", "eddy.kafka('localhost:9092')", "kafka"),
    ("faust", "eddy.faust", "faust"),
    ("httpx", "import eddy.client", "client"),
    ("starlette uvicorn prometheus_client", "from eddy.serve import endpoint_of; endpoint_of('8080')", "http"),
    ("pyspark", "from eddy.connectors.spark import local_session; local_session()", "spark"),
    ("pyarrow", "from eddy.connectors.spark import local_session; local_session()", "spark"),
    ("fastavro", "eddy.SchemaRegistry('http://localhost:8081')", "schema-registry"),
    ("authlib", "eddy.SchemaRegistry('http://localhost:8081')", "schema-registry"),
    ("confluent_kafka", "eddy.SchemaRegistry('http://localhost:8081')", "schema-registry"),
    ("jsonschema", "eddy.SchemaRegistry('http://localhost:8081').json('{}')", "schema-registry"),
]
"""Packages that are absent, an entry point that needs them, and the extra that brings them."""

KINDS: dict[str, tuple[Callable[[random.Random], Mistake], int]] = {
    "type": (of_type, 6),
    "order": (of_order, 4),
    "name": (of_name, 3),
    "count": (of_count, 3),
    "place": (of_place, 3),
    "extra": (of_extra, 1),
}
"""The kinds, each with its share of the draws."""


def drawn(seed: int) -> Iterator[Mistake]:
    """Mistakes without end. One whose answer is "fits" is none."""
    draw = random.Random(seed)
    makers = [make for make, share in KINDS.values() for _ in range(share)]
    while True:
        yield draw.choice(makers)(draw)


def _positional(method: Any) -> list[str]:
    """The parameters that may be given by place."""
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return [name for name, found in inspect.signature(method).parameters.items() if found.kind in kinds]


def _takes_any(method: Any) -> bool:
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in inspect.signature(method).parameters.values())


def _said(run: Callable[[], Any], mutation: Mutation, arguments: dict[str, Any]) -> str:
    try:
        found = run()
    except eddy.EddyError as error:
        return fault(mutation, arguments, str(error))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"no error, but {type(found).__name__}"


def _refused_by_python(run: Callable[[], Any], word: str) -> str:
    try:
        found = run()
    except TypeError as error:
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if last is None or last.tb_frame.f_code.co_filename != __file__:
            return f"raised elsewhere than at the call: {error}"
        return "" if word in str(error) else f"does not say {word}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"no error, but {type(found).__name__}"


def main(seed: int, count: int) -> int:
    """Try so many mistakes, print the answers that are wrong, and the numbers by kind."""
    tried: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    with ExitStack() as stack:
        place = Place(stack)
        for mistake in drawn(seed):
            said = mistake.answer(place)
            if said == "fits":
                continue
            tried[mistake.kind] += 1
            if said:
                wrong[mistake.kind] += 1
                print(f"{mistake.kind}: {mistake.what}: {said}")
            if tried.total() == count:
                break
    print(", ".join(f"{kind} {tried[kind]}, {wrong[kind]} told badly" for kind in KINDS))
    return wrong.total()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
