"""The programs that are tortured: those of the simulation, under names of their own for each run on a broker.

    descendants   the README's: a recursion over a table whose edges come shuffled, move and go
    countdown     facts: n → n - 1 down to 0, so n + 1 of them for each root; and how many by root
    orders        facts re-keyed through a repartition and counted, beside a table that changes
    nearest       a recursion by nested time: least distances through cycles, with links that come and go
    circles       descendants where some nodes are put below their own ones: what cycles reach is held
    growing       the same with rows that grow at each step: any cycle holds everything
    clicks        windows of time: in the partitions of their source, and after a repartition, closed by marks

Their oracles are the simulation's. Every topic has three partitions, so that rows cross between workers.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import eddy
from tests.descendants import descendants
from tests.simulation import later_programs, programs
from tests.simulation.programs import Event, Expected, Inputs, Program

__all__ = ["NAMES", "PARTITIONS", "program_of"]

PARTITIONS = 3
NODES, ROOTS, LONGEST = 40, 30, 12

Build = Callable[[Callable[[str], str]], eddy.Topology]


def family(of_run: Callable[[str], str]) -> eddy.Topology:
    """The README's example."""
    topology = eddy.Topology(of_run("family"))
    parents = topology.table(of_run("nodes"), key=eddy.String, value=eddy.String, name="nodes")
    descendants(parents).to(of_run("descendants"), value=eddy.Int64)
    return topology


def descendants_event(rng: random.Random) -> Event:
    """A node is put below one of a lower number, moved there, or deleted."""
    node = rng.randrange(1, NODES)
    return "nodes", f"n{node}", None if rng.random() < 0.1 else f"n{rng.randrange(node)}"


def countdown(of_run: Callable[[str], str]) -> eddy.Topology:
    """Records n, n-1, … 0 for each record n, each under a key of its own; and how many by root."""
    topology = eddy.Topology(of_run("countdown"))
    roots = topology.stream(of_run("roots"), key=eddy.String, value=eddy.Int64)
    visits = roots.recursively(
        lambda records: records.filter(lambda _, n: n > 0).map(programs.put_lower, key=eddy.String, value=eddy.Int64),
        name="down",
    )
    visits.to(of_run("visits"), key=eddy.String, value=eddy.Int64)
    counts = visits.group_by(lambda key, _: key.split("/")[0], key=eddy.String).count("visits-of")
    counts.to(of_run("visits-of"), key=eddy.String, value=eddy.Int64)
    return topology


def countdown_event(rng: random.Random) -> Event:
    """A root."""
    return "roots", f"r{rng.randrange(ROOTS)}", rng.randrange(LONGEST)


def orders(of_run: Callable[[str], str]) -> eddy.Topology:
    """Orders counted by customer, beside the customer's name; and the lengths of names by initial."""
    topology = eddy.Topology(of_run("orders"))
    placed = topology.stream(of_run("placed"), key=eddy.String, value=eddy.String)
    customers = topology.table(of_run("customers"), key=eddy.String, value=eddy.String, name="customers")
    counts = placed.group_by(lambda _, customer: customer, key=eddy.String).count("orders-of")
    profiles = customers.outer_join(counts, lambda name, n: f"{name}:{n}", name="profiles", value=eddy.String)
    profiles.to(of_run("profiles"), key=eddy.String, value=eddy.String)
    initials = customers.group_by(lambda _, name: (name[0], len(name)), key=eddy.String, value=eddy.Int64)
    lengths = initials.reduce(lambda a, b: a + b, lambda a, b: a - b, "lengths")
    lengths.to(of_run("lengths"), key=eddy.String, value=eddy.Int64)
    return topology


def nearest(of_run: Callable[[str], str]) -> eddy.Topology:
    """The least number of links from the home page."""
    topology = eddy.Topology(of_run("nearest"))
    home = topology.constant([("p0", 0)], name="home", key=eddy.String, value=eddy.Int64)
    links = topology.table(of_run("links"), key=eddy.String, value=eddy.String, name="links")
    edges = links.to_relation().map(lambda _, link: tuple(link.split(">")), name="edges", key=eddy.String)
    lengths = programs.nearest_of(home, edges).group_by_key(key=eddy.String, value=eddy.Int64)
    summed = lengths.reduce(lambda a, b: a + b, lambda a, b: a - b, "lengths")
    summed.to(of_run("lengths"), key=eddy.String, value=eddy.Int64)
    return topology


def nearest_event(rng: random.Random) -> Event:
    """A link comes, becomes another one, or goes."""
    link = None if rng.random() < 0.2 else f"p{rng.randrange(NODES)}>p{rng.randrange(NODES)}"
    return "links", f"l{rng.randrange(2 * NODES)}", link


def circles(of_run: Callable[[str], str]) -> eddy.Topology:
    """Rows (ancestor, 1), counted; cycles in the data are held."""
    return _held(of_run, "circles", lambda _, one, parent: (parent, one))


def growing(of_run: Callable[[str], str]) -> eddy.Topology:
    """Rows (ancestor, distance), counted; around a cycle the distance grows without an end."""
    return _held(of_run, "growing", lambda _, distance, parent: (parent, distance + 1))


def _held(
    of_run: Callable[[str], str], name: str, upwards: Callable[[str, int, str], tuple[str, int]]
) -> eddy.Topology:
    topology = eddy.Topology(of_run(name))
    parents = topology.table(of_run("nodes"), key=eddy.String, value=eddy.String, name="nodes")
    above = parents.to_relation().map(lambda _, parent: (parent, 1), key=eddy.String, value=eddy.Int64)
    found = above.recursively(lambda rows: rows.join(parents, upwards), name="ancestors")
    counted = found.group_by_key().count("descendants")
    counted.to(of_run("descendants"), value=eddy.Int64)
    return topology


def circles_event(rng: random.Random) -> Event:
    """A node is put below one of a lower number, at times below any, or deleted."""
    node = rng.randrange(1, NODES)
    below = rng.randrange(NODES if rng.random() < 0.1 else node)
    return "nodes", f"n{node}", None if rng.random() < 0.1 else f"n{below}"


def circles_expect(inputs: Inputs) -> Expected:
    """What cycles reach is left out; the states of what is held are no function of the input."""
    found = programs.circles_expect(inputs)
    return Expected(found.sinks, {name: found.states[name] for name in ("nodes", "descendants")}, holds=True)


def growing_expect(inputs: Inputs) -> Expected:
    """As without cycles, or nothing."""
    parents: dict[str, str] = inputs["nodes"]
    counts: Counter[str] = Counter()
    for node in parents:
        distance, above = 1, parents.get(node)
        while above is not None and distance <= len(parents):
            counts[above] += 1
            distance, above = distance + 1, parents.get(above)
        if above is not None:
            counts.clear()
            break
    return Expected({"descendants": dict(counts)}, {"nodes": parents, "descendants": dict(counts)}, holds=True)


SCALE = 250
"""The milliseconds of one of the simulation's: windows of a second, which often close."""


def clicks(of_run: Callable[[str], str]) -> eddy.Topology:
    """Clicks in windows of three kinds."""
    topology = eddy.Topology(of_run("clicks"))
    for name, rows in programs.clicks_in_windows(topology, of_run("clicks"), SCALE).items():
        rows.to(of_run(name), value=eddy.Int64)
    return topology


def clicks_expect(inputs: Inputs) -> Expected:
    """The simulation's, by windows of this size."""
    return programs.clicks_expect(inputs, SCALE)


def rated(of_run: Callable[[str], str]) -> eddy.Topology:
    """Orders with the rate of their currency at their time."""
    return later_programs.rated(of_run, SCALE)


def rated_expect(inputs: Inputs) -> Expected:
    """The simulation's, by this scale."""
    return later_programs.rated_expect(inputs, SCALE)


def paired(of_run: Callable[[str], str]) -> eddy.Topology:
    """Questions and answers that are near in time."""
    return later_programs.paired(of_run, SCALE)


def paired_expect(inputs: Inputs) -> Expected:
    """The simulation's, by this scale."""
    return later_programs.paired_expect(inputs, SCALE)


_PROGRAMS: dict[str, tuple[Build, Callable[[random.Random], Event], Callable[[Inputs], Expected]]] = {
    "descendants": (family, descendants_event, programs.family_expect),
    "countdown": (countdown, countdown_event, programs.countdown_expect),
    "orders": (orders, programs.orders_event, programs.orders_expect),
    "nearest": (nearest, nearest_event, programs.nearest_expect),
    "circles": (circles, circles_event, circles_expect),
    "growing": (growing, circles_event, growing_expect),
    "clicks": (clicks, programs.clicks_event, clicks_expect),
    "rated": (rated, later_programs.rated_event, rated_expect),
    "paired": (paired, later_programs.paired_event, paired_expect),
}
NAMES = list(_PROGRAMS)


def program_of(name: str, run: str) -> Program:
    """The program of that name with `run` in the names of its application and topics."""
    build, draw, foresee = _PROGRAMS[name]

    def of_run(plain: str) -> str:
        return f"{plain}-{run}"

    def event(rng: random.Random) -> Event:
        topic, key, value = draw(rng)
        return of_run(topic), key, value

    def expect(inputs: Inputs) -> Expected:
        plain: dict[str, Any] = {topic.removesuffix(f"-{run}"): rows for topic, rows in inputs.items()}
        found = foresee(plain)
        states = dict(found.states)
        for name in [name for name in states if name.endswith("-marks")]:
            states[name] = {(to, of_run(topic), p): end for (to, topic, p), end in states[name].items()}
        return replace(found, sinks={of_run(topic): rows for topic, rows in found.sinks.items()}, states=states)

    return Program(name, lambda: build(of_run), {}, event, expect, timed=name in {"clicks", "rated", "paired"})
