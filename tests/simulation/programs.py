"""The programs that the simulation and the kill tests run, each with its inputs and a naive oracle.

An oracle recomputes everything from the inputs as they are in the log, in plain Python, and shares
no code with eddy: what each output topic folds to, and what each state holds. Data is such that
every order in which partitions may be read is without cycles, or the recursion has a bound.
"""

import pathlib
import random
import runpy
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

import eddy
from tests import oracle

__all__ = ["PROGRAMS", "Event", "Expected", "Program", "Timed"]

Event = tuple[str, str, Any]
"""(topic, key, value or None)."""

Inputs = Mapping[str, Any]
"""By source topic: a dict of the latest values for a table, the list of (key, value) for a stream, or `Timed` rows."""


class Timed(NamedTuple):
    """Rows (key, value, partition, timestamp) of a topic, and the number of its partitions."""

    rows: list[tuple[Any, Any, int, int]]
    partitions: int


@dataclass(frozen=True)
class Expected:
    """By topic what each sink folds to, a dict for a table and a Counter for facts; by name each state's rows.

    `set_aside`: how many rows are set aside and keys withheld. `holds`: something has no finite answer, so that states
    which are not named depend on the order in which records came.
    """

    sinks: dict[str, Any]
    states: dict[str, dict[Any, Any]]
    set_aside: int = 0
    holds: bool = False


@dataclass(frozen=True)
class Program:
    """`partitions` maps each source topic to the one whose number of partitions it has.

    `poison` are events that the program's functions cannot process, `bad_rows` those of which rows fail after an
    exchange. `timed`: its inputs are `Timed`.
    """

    name: str
    build: Callable[[], eddy.Topology]
    partitions: dict[str, str]
    event: Callable[[random.Random], Event]
    expect: Callable[[Inputs], Expected]
    poison: tuple[Event, ...] = ()
    bad_rows: tuple[Event, ...] = ()
    timed: bool = False

    def good(self, topic: str, rows: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """The rows of a topic that its functions can process."""
        return [row for row in rows if (topic, *row) not in self.poison]

    def topology(self) -> eddy.Topology:
        """The topology, built once."""
        return _built(self.build)


@cache
def _built(build: Callable[[], eddy.Topology]) -> eddy.Topology:
    return build()


# Family: the descendants of everybody


def family() -> eddy.Topology:
    """The example of the README."""
    example = pathlib.Path(__file__).parents[2] / "examples" / "family.py"
    topology = runpy.run_path(str(example))["topology"]
    assert isinstance(topology, eddy.Topology)
    return topology


def family_event(rng: random.Random) -> Event:
    """A node is put below one of a lower number, moved there, or deleted."""
    node = rng.randrange(1, 13)
    return "nodes", f"n{node}", None if rng.random() < 0.2 else f"n{rng.randrange(node)}"


def family_expect(inputs: Inputs) -> Expected:
    """Walk up from every node."""
    parents = inputs["nodes"]
    descendants: Counter[str] = Counter()
    for node in parents:
        while (node := parents.get(node)) is not None:
            descendants[node] += 1
    ancestors = {(node, 1): count for node, count in descendants.items()}
    return Expected(
        {"descendants": dict(descendants)},
        {"nodes": parents, "ancestors": ancestors, "descendants": dict(descendants)},
    )


# Circles: the same where a node may be put below one of its own descendants


def circles() -> eddy.Topology:
    """Rows (ancestor, 1), counted; cycles in the data are held."""
    topology = eddy.Topology("circles")
    parents = topology.table("nodes", key=eddy.String, value=eddy.String)
    above = parents.to_relation().map(lambda node, parent: (parent, 1), key=eddy.String, value=eddy.Int64)
    counted = above.recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), "ancestors")
    counted.group_by_key().count("descendants").to("descendants", value=eddy.Int64)
    return topology


def circles_event(rng: random.Random) -> Event:
    """A node is put below any node, or deleted."""
    return "nodes", f"n{rng.randrange(6)}", None if rng.random() < 0.3 else f"n{rng.randrange(6)}"


def circles_expect(inputs: Inputs) -> Expected:
    """What cycles reach is left out."""
    parents = inputs["nodes"]
    edges = oracle.bag((item, 1) for item in parents.items())
    seeds = oracle.bag(((parent, 1), 1) for parent in parents.values())
    rows, reached = oracle.held_recursion(seeds, lambda x: oracle.joined(x, edges, lambda _, one, up: (up, one)))
    counts = {node: count for (node, _), count in rows.items()}
    states = {"nodes": parents, "descendants": counts} | ({} if reached else {"ancestors": dict(rows)})
    return Expected({"descendants": counts}, states, holds=bool(reached))


# Bill of materials: quantities multiplied along every path


def materials() -> eddy.Topology:
    """Rows (assembly, (part, quantity)); op moves to the part to find what that is made of."""
    topology = eddy.Topology("materials")
    uses = topology.table("uses", key=eddy.String, value=eddy.Int64)  # "assembly>part" -> quantity
    edges = uses.to_relation().map(_edge, name="edges", key=eddy.String)
    contains = edges.recursively(
        lambda rows: rows.map(lambda whole, part: (part[0], (whole, part[1])), name="parts", key=eddy.String).join(
            edges,
            lambda _, outer, inner: (outer[0], (inner[0], outer[1] * inner[1])),
            name="parts-of-parts",
            key=eddy.String,
        ),
        name="contains",
    )
    totals = contains.group_by_key(key=eddy.String).aggregate(
        lambda: 0,
        lambda _, part, total: total + part[1],
        lambda _, part, total: total - part[1],
        "totals",
        value=eddy.Int64,
    )
    totals.to("totals", key=eddy.String, value=eddy.Int64)
    return topology


def _edge(key: str, quantity: int) -> tuple[str, tuple[str, int]]:
    assembly, part = key.split(">")
    return assembly, (part, quantity)


def materials_event(rng: random.Random) -> Event:
    """A use of a part by an assembly of a lower number comes, changes or goes."""
    low, high = sorted(rng.sample(range(7), 2))
    return "uses", f"p{low}>p{high}", None if rng.random() < 0.3 else rng.randrange(1, 4)


def materials_expect(inputs: Inputs) -> Expected:
    """Enumerate every path below every assembly."""
    edges: dict[str, list[tuple[str, int]]] = {}
    for key, quantity in inputs["uses"].items():
        assembly, part = _edge(key, quantity)
        edges.setdefault(assembly, []).append(part)

    def below(assembly: str, factor: int) -> list[tuple[str, int]]:
        found = []
        for part, quantity in edges.get(assembly, []):
            found += [(part, factor * quantity), *below(part, factor * quantity)]
        return found

    contains = {assembly: below(assembly, 1) for assembly in edges}
    totals = {assembly: sum(quantity for _, quantity in parts) for assembly, parts in contains.items()}
    return Expected(
        {"totals": totals},
        {
            "uses": inputs["uses"],
            "contains": Counter((a, part) for a, parts in contains.items() for part in parts),
            "parts-of-parts-right": Counter((a, part) for a, parts in edges.items() for part in parts),
            "parts-of-parts-left": Counter((p, (a, q)) for a, parts in contains.items() for p, q in parts),
            "totals": totals,
            "totals-rows": {assembly: len(parts) for assembly, parts in contains.items()},
        },
    )


# Permissions: who is in which group, at most two levels up, cycles allowed

LEVELS = 2


def permissions() -> eddy.Topology:
    """Rows (group, member), by depth; then each once, and the groups' sizes."""
    topology = eddy.Topology("permissions")
    members = topology.table("members", key=eddy.String, value=eddy.String)  # any id -> "member>group"
    pairs = members.to_relation()
    up = pairs.map(lambda _, pair: tuple(pair.split(">")), name="up", key=eddy.String, value=eddy.String)
    seed = pairs.map(lambda _, pair: tuple(pair.split(">")[::-1]), name="in", key=eddy.String, value=eddy.String)
    everyone = seed.recursively(
        lambda rows: rows.join(up, lambda _, member, group: (group, member), name="inherit", key=eddy.String),
        name="everyone",
        max_depth=LEVELS,
    )
    sizes = everyone.distinct("each-once").group_by_key(key=eddy.String).count("sizes")
    sizes.to("sizes", key=eddy.String, value=eddy.Int64)
    return topology


def permissions_event(rng: random.Random) -> Event:
    """A membership comes, becomes another one, or goes."""
    pair = None if rng.random() < 0.3 else f"g{rng.randrange(5)}>g{rng.randrange(5)}"
    return "members", f"m{rng.randrange(7)}", pair


def permissions_expect(inputs: Inputs) -> Expected:
    """Extend every membership by one level at a time."""
    pairs = [tuple(pair.split(">")) for pair in inputs["members"].values()]
    level = Counter((group, member) for member, group in pairs)
    by_depth: Counter[Any] = Counter()
    for depth in range(LEVELS + 1):
        by_depth.update({(group, (depth, member)): weight for (group, member), weight in level.items()})
        higher: Counter[Any] = Counter()
        for (group, member), weight in level.items():
            for lower, upper in pairs:
                if lower == group:
                    higher[upper, member] += weight
        level = higher
    everyone: Counter[Any] = Counter()
    for (group, (_, member)), weight in by_depth.items():
        everyone[group, member] += weight
    sizes = dict(Counter(group for group, _ in everyone))
    return Expected(
        {"sizes": sizes},
        {
            "members": inputs["members"],
            "inherit-right": Counter(pairs),
            "everyone": by_depth,
            "each-once": everyone,
            "sizes": sizes,
        },
    )


# Countdown: facts, n + 1 of them for each root


def countdown() -> eddy.Topology:
    """Records n, n-1, … 0 for each record n, each under a key of its own; and how many by root."""
    topology = eddy.Topology("countdown")
    roots = topology.stream("roots", key=eddy.String, value=eddy.Int64)
    visits = roots.map_values(_counted, name="checked", value=eddy.Int64).recursively(
        lambda records: records.filter(lambda _, n: n > 0).map(put_lower, key=eddy.String, value=eddy.Int64),
        name="down",
    )
    visits.to("visits", key=eddy.String, value=eddy.Int64)
    counts = visits.group_by(lambda key, _: key.split("/")[0], key=eddy.String).count("visits-of")
    counts.to("visits-of", key=eddy.String, value=eddy.Int64)
    return topology


def _counted(n: int) -> int:
    if n < 0:
        raise ValueError("nothing is below 0")
    return n


def put_lower(key: str, n: int) -> tuple[str, int]:
    return f"{key.split('/')[0]}/{n - 1}", n - 1


def countdown_event(rng: random.Random) -> Event:
    """A root, often one that was there before."""
    return "roots", f"r{rng.randrange(5)}", rng.randrange(7)


def countdown_expect(inputs: Inputs) -> Expected:
    """Count down."""
    visits: Counter[Any] = Counter()
    totals: Counter[str] = Counter()
    for root, n in inputs["roots"]:
        visits.update([(root, n), *((f"{root}/{i}", i) for i in range(n))])
        totals[root] += n + 1
    return Expected({"visits": visits, "visits-of": dict(totals)}, {"visits-of": dict(totals)})


# Orders: a repartition, a join of tables, and a reduce that takes back


LARGEST = 2**63 - 1


def orders() -> eddy.Topology:
    """Orders counted by customer, beside the customer's name; and the lengths of names by initial."""
    topology = eddy.Topology("orders")
    placed = topology.stream("placed", key=eddy.String, value=eddy.String)  # order -> customer
    customers = topology.table("customers", key=eddy.String, value=eddy.String)  # customer -> name
    counts = placed.group_by(lambda _, customer: customer, key=eddy.String).count("orders-of")
    profiles = customers.outer_join(counts, _profile, name="profiles", value=eddy.String)
    profiles.to("profiles", key=eddy.String, value=eddy.String)
    initials = customers.group_by(lambda _, name: (name[0], _length(name)), key=eddy.String, value=eddy.Int64)
    lengths = initials.reduce(lambda a, b: a + b, lambda a, b: a - b, "lengths")
    lengths.to("lengths", key=eddy.String, value=eddy.Int64)
    return topology


def _length(name: str) -> int:
    """Of a name with a star, so great that no state has room for it and another one."""
    return LARGEST if name.endswith("*") else len(name)


def _profile(name: str | None, n: int | None) -> str:
    if name == "?":
        raise ValueError("nobody is called ?")
    return f"{name}:{n}"


def orders_event(rng: random.Random) -> Event:
    """An order, or a customer's name that comes, changes or goes."""
    customer = f"c{rng.randrange(6)}"
    if rng.random() < 0.5:
        return "placed", f"o{rng.randrange(1000)}", customer
    return "customers", customer, None if rng.random() < 0.2 else rng.choice("ab") * rng.randrange(1, 5)


def orders_expect(inputs: Inputs) -> Expected:
    """Count, join and add up."""
    counts = Counter(customer for _, customer in inputs["placed"])
    names = inputs["customers"]
    sums: Counter[str] = Counter()
    for name in names.values():
        sums[name[0]] += _length(name)
    lengths = {initial: total for initial, total in sums.items() if total <= LARGEST}
    profiles = {c: f"{names.get(c)}:{counts.get(c)}" for c in {*names, *counts} if names.get(c) != "?"}
    return Expected(
        {"profiles": profiles, "lengths": lengths},
        {
            "orders-of": dict(counts),
            "customers": names,
            "lengths": lengths,
            "lengths-rows": dict(Counter(name[0] for name in names.values())),
        },
        len(sums) - len(lengths) + list(names.values()).count("?"),
    )


# Rooms: a stream re-keyed to another number of partitions, of which the last value counts


def rooms() -> eddy.Topology:
    """The latest reading by room; a room has one sensor, so the readings of a room have an order."""
    topology = eddy.Topology("rooms")
    readings = topology.stream("readings", key=eddy.String, value=eddy.Int64)
    by_room = readings.select_key(_room, key=eddy.String)
    latest = by_room.repartition(partitions=2, name="by-room").to_table("latest")
    latest.to("latest", key=eddy.String, value=eddy.Int64)
    return topology


def _room(sensor: str, value: int) -> str:
    if value < 0:
        raise ValueError("nothing is below 0")
    return f"room-{sensor}"


def rooms_event(rng: random.Random) -> Event:
    """A reading."""
    return "readings", f"s{rng.randrange(6)}", rng.randrange(100)


def rooms_expect(inputs: Inputs) -> Expected:
    """The last one wins."""
    latest = {f"room-{sensor}": value for sensor, value in inputs["readings"]}
    return Expected({"latest": latest}, {"latest": latest})


# Nearest: the least number of links from a page, through cycles, links that go and links that come twice


def nearest() -> eddy.Topology:
    """Rows (page, number of links): 0 for the home page, and in every iteration the least that one more link gives."""
    topology = eddy.Topology("nearest")
    home = topology.constant([("p0", 0)], name="home", key=eddy.String, value=eddy.Int64)
    links = topology.table("links", key=eddy.String, value=eddy.String)  # any id -> "page>page"
    edges = links.to_relation().map(lambda _, link: tuple(link.split(">")), name="edges", key=eddy.String)
    lengths = nearest_of(home, edges).group_by_key(key=eddy.String, value=eddy.Int64)
    lengths.reduce(lambda a, b: a + b, lambda a, b: a - b, "lengths").to("lengths", key=eddy.String, value=eddy.Int64)
    return topology


def nearest_of(home: Any, edges: Any) -> Any:
    """The recursion, and the least of what it finds."""
    found = home.recursively(
        lambda pages: pages.join(
            edges, lambda _, n, to: (to, n + 1), name="further", key=eddy.String, value=eddy.Int64
        ).reduce(_least, name="nearest"),
        name="found",
    )
    return found.reduce(_least, name="least")


def _least(_: str, lengths: Mapping[int, int]) -> list[int]:
    return [min(lengths)]


def nearest_event(rng: random.Random) -> Event:
    """A link comes, becomes another one, or goes."""
    link = None if rng.random() < 0.3 else f"p{rng.randrange(5)}>p{rng.randrange(5)}"
    return "links", f"l{rng.randrange(9)}", link


def nearest_expect(inputs: Inputs) -> Expected:
    """Go iteration by iteration from the home page, and keep what each iteration has changed."""
    edges = Counter(tuple(link.split(">")) for link in inputs["links"].values())
    found: list[Counter[Any]] = [Counter([("p0", 0)])]
    steps: list[Counter[Any]] = []
    least: list[Counter[Any]] = []
    while len(found) < 2 or found[-1] != found[-2]:
        step: Counter[Any] = Counter()
        for (page, n), times in found[-1].items():
            for (source, to), weight in edges.items():
                if source == page:
                    step[to, n + 1] += weight * times
        steps.append(step)
        least.append(Counter({(to, min(n for page, n in step if page == to)): 1 for to, _ in step}))
        found.append(least[-1] + Counter([("p0", 0)]))
    lengths = {page: min(n for other, n in found[-1] if other == page) for page, _ in found[-1]}
    return Expected(
        {"lengths": lengths},
        {
            "links": inputs["links"],
            "home": {("p0", 0): 1},
            "further-left": by_round(found[:-1]),
            "further-right": dict(edges),
            "nearest": by_round(steps),
            "nearest-made": by_round(least),
            "least": dict(found[-1]),
            "lengths": lengths,
            "lengths-rows": dict.fromkeys(lengths, 1),
        },
    )


def by_round(bags: list[Counter[Any]]) -> dict[Any, int]:
    """Rows (key, iteration, value) with the weight by which each iteration differs from the one before."""
    differences: Counter[Any] = Counter()
    for n, (before, after) in enumerate(zip([Counter[Any](), *bags], bags, strict=False)):
        for key, value in {**before, **after}:
            differences[key, n, value] = after[key, value] - before[key, value]
    return {row: weight for row, weight in differences.items() if weight}


# Sessions: a table whose rows expire by the time of their partition

SESSION_MS = 2


def sessions() -> eddy.Topology:
    """The latest sign of life by user, for a while; and how many users are in each room."""
    topology = eddy.Topology("sessions")
    signs = topology.stream("signs", key=eddy.String, value=eddy.Int64)  # user -> room
    live = signs.filter(_is_room).to_table("live", timedelta(milliseconds=SESSION_MS), "event time")
    live.to("live", key=eddy.String, value=eddy.Int64)
    rooms = live.group_by(lambda user, room: (str(room), user), key=eddy.String, value=eddy.String)
    rooms.count("in-room").to("in-room", key=eddy.String, value=eddy.Int64)
    return topology


def _is_room(user: str, room: int | None) -> bool:
    if room is not None and room < 0:
        raise ValueError("nothing is below 0")
    return room != 9


def sessions_event(rng: random.Random) -> Event:
    """A user comes to a room, often to the one where it is, or leaves; room 9 only lets time pass."""
    return "signs", f"u{rng.randrange(8)}", None if rng.random() < 0.1 else rng.choice([1, 1, 2, 9])


def sessions_expect(inputs: Inputs) -> Expected:
    """The last record of each user, unless a record of its partition was so much later."""
    now: dict[int, int] = {}
    last: dict[str, tuple[int | None, int, int]] = {}
    for user, room, partition, time in inputs["signs"].rows:
        now[partition] = max(now.get(partition, 0), time)
        if room != 9:
            last[user] = room, partition, time + SESSION_MS
    there = {
        user: (room, end) for user, (room, partition, end) in last.items() if room is not None and now[partition] < end
    }
    live = {user: room for user, (room, _) in there.items()}
    counts = {str(room): n for room, n in Counter(live.values()).items()}
    states = {
        "live": live,
        "live-deadlines": {user: end for user, (_, end) in there.items()},
        "live-calendar": {(user, end): 1 for user, (_, end) in there.items()},
        "in-room": counts,
    }
    return Expected({"live": live, "in-room": counts}, states)


# Visits: processors with stores, before and after an exchange, and punctuations by event time

LOOK_MS = 2
BORED = 7
"""A room on which a processor raises, after it has written its store."""


class Visits:
    """Counts the visits of each user; at each look tells and forgets those who came often."""

    def init(self, context: eddy.ProcessorContext) -> None:
        """Look every now and then."""
        self.context, self.counts = context, context.store("visits-of")
        self.seen = 0
        context.schedule(timedelta(milliseconds=LOOK_MS), "event time", self.look)

    def process(self, record: eddy.Record[str, int]) -> None:
        """Count; a record that fails has counted before."""
        n = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, n)
        self.context.forward(record.replace(value=(record.value, n)))
        if record.value == BORED:
            raise ValueError("a boring room")

    def look(self, time_ms: int) -> None:
        """Tell, by minus, and forget."""
        for user, n in list(self.counts.all()):
            if n > 2:
                self.context.forward(eddy.Record(user, (0, -n)))
                self.counts.delete(user)


class Guests:
    """Counts the records of each room."""

    def init(self, context: eddy.ProcessorContext) -> None:
        """Take the store."""
        self.context, self.counts = context, context.store("guests")

    def process(self, record: eddy.Record[str, Any]) -> None:
        """Count."""
        n = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, n)
        self.context.forward(record.replace(value=n))


def visits() -> eddy.Topology:
    """How often each user came, at each visit and look; and how many guests each room had, at each."""
    topology = eddy.Topology("visits")
    topology.store("visits-of", eddy.String, eddy.Int64)
    topology.store("guests", eddy.String, eddy.Int64, memory=True)
    came = topology.stream("came", key=eddy.String, value=eddy.Int64)  # user -> room
    numbered = came.filter(_is_room).process_values(Visits, ["visits-of"], "visits", eddy.Native)
    numbered.map_values(lambda pair: pair[1], value=eddy.Int64).to("numbered", key=eddy.String, value=eddy.Int64)
    rooms = numbered.select_key(lambda user, pair: str(pair[0]), key=eddy.String)
    rooms.process(Guests, ["guests"], "rooms", eddy.String, eddy.Int64).to("rooms")
    return topology


def visits_event(rng: random.Random) -> Event:
    """A user visits a room; room 9 only lets time pass."""
    return "came", f"u{rng.randrange(8)}", rng.choice([1, 1, 2, 9])


def visits_expect(inputs: Inputs) -> Expected:
    """Partition by partition, with a look before the first record of each span."""
    clock: dict[int, int] = {}
    counts: dict[int, Counter[str]] = {}
    told: list[tuple[str, int]] = []
    rooms: Counter[str] = Counter()
    for user, room, partition, time in inputs["came"].rows:
        here, before = counts.setdefault(partition, Counter()), clock.get(partition, -1)
        clock[partition] = max(before, time)
        if before >= 0 and before // LOOK_MS < clock[partition] // LOOK_MS:
            often = [known for known, n in here.items() if n > 2]
            told += [(known, -here.pop(known)) for known in often]
            rooms.update({"0": len(often)})
        if room not in (9, BORED):
            here[user] += 1
            told.append((user, here[user]))
            rooms[str(room)] += 1
    guests = {room: n for room, n in rooms.items() if n}
    ever = Counter((room, n) for room, last in guests.items() for n in range(1, last + 1))
    states = {
        "visits-of": {user: n for here in counts.values() for user, n in here.items()},
        "guests": guests,
        "visits-moments": {},
        "rooms-moments": {},
    }
    return Expected({"numbered": Counter(told), "rooms": ever}, states)


# Clicks: windows of time, in the partitions of their source and after an exchange

WINDOW_MS, STEP_MS, GRACE_MS, KEPT_MS = 4, 2, 1, 3
FULL = 8
"""A page of which two clicks in a window make a sum that no state has room for."""


def clicks() -> eddy.Topology:
    """Clicks of each user in each window, at each change; and sums by page, once when their windows close."""
    topology = eddy.Topology("clicks")
    for name, rows in clicks_in_windows(topology, "clicks").items():
        rows.to(name, value=eddy.Int64)
    return topology


def clicks_in_windows(topology: eddy.Topology, topic: str, scale: int = 1) -> dict[str, Any]:
    """The counts by user, the sums by page, and counts of clicks near each other; `scale`: the milliseconds of one."""
    came = topology.stream(topic, key=eddy.String, value=eddy.Int64).filter(_is_room)  # user -> page
    size, step, grace, kept = (timedelta(milliseconds=n * scale) for n in (WINDOW_MS, STEP_MS, GRACE_MS, KEPT_MS))
    tumbling, hopping = eddy.TimeWindows(size, grace=grace), eddy.TimeWindows(size, step, grace)
    by_user = came.group_by_key().windowed_by(tumbling, retention=kept).count("by-user")
    pages = came.group_by(lambda user, page: str(page), key=eddy.String).windowed_by(hopping, emit="close")
    by_page = pages.aggregate(lambda: 0, _clicked, "by-page", value=eddy.Int64)
    near = eddy.SlidingWindows(size, grace)
    rushes = came.group_by(lambda user, page: str(page), key=eddy.String).windowed_by(near).count("rushes")
    return {"by-user": by_user, "by-page": by_page.to_stream(), "rushes": rushes}


def _clicked(page: str, number: int, total: int) -> int:
    if number == BORED:
        raise ValueError("a boring page")
    return total + (LARGEST if number == FULL else 1)


def clicks_event(rng: random.Random) -> Event:
    """A user clicks on a page; page 9 only lets time pass."""
    return "clicks", f"u{rng.randrange(8)}", rng.choice([1, 1, 2, 9])


def clicks_expect(inputs: Inputs, scale: int = 1) -> Expected:
    """Record by record: late by its own partition; then the windows that all partitions have passed are closed."""
    rows, partitions = inputs["clicks"]
    size, step, grace, retention = (n * scale for n in (WINDOW_MS, STEP_MS, GRACE_MS, KEPT_MS))

    def windowed(key: str, start: int) -> eddy.Windowed[str]:
        return eddy.Windowed(key, start, start + size)

    clock = dict.fromkeys(range(partitions), -1)
    counts: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    home: dict[str, int] = {}
    for user, page, partition, time in rows:
        now = clock[partition] = max(clock[partition], time)
        home[user] = partition
        for start in range(max(0, time - size) // step * step, time + 1, step):
            if page == 9 or start + size <= time or start + size + grace <= now:
                continue
            if start % size == 0:
                counts[user, start] += 1
            if page != BORED:
                sums[str(page), start] += LARGEST if page == FULL else 1
    passed = min(clock.values()) - grace
    pages = {windowed(*key): total for key, total in sums.items()}
    written = {window: total for window, total in pages.items() if total <= LARGEST}
    still_open = {window for window in pages if window.end_ms > passed}
    kept = {}
    for user, start in counts:
        end = start + size
        over = -(-(end + retention) // size) * size
        if clock[home[user]] - grace < over:
            kept[windowed(user, start)] = over
    states = {
        "by-user": {window: counts[window.key, window.start_ms] for window in kept},
        "by-user-calendar": dict.fromkeys(kept.items(), 1),
        "by-page": {window: total for window, total in written.items() if window in still_open},
        "by-page-calendar": {(window, window.end_ms): 1 for window in still_open},
        "by-page-marks": {
            (to, "clicks", partition): (now - grace) // step * step
            for partition, now in clock.items()
            if now - grace >= size
            for to in range(partitions)
        },
    }
    sinks = {
        "by-user": {windowed(*key): n for key, n in counts.items()},
        "by-page": Counter((window, total) for window, total in written.items() if window not in still_open),
    }
    sinks["rushes"], more = _rushes(inputs, size, grace)
    states |= more
    return Expected(sinks, states, len(still_open - set(written)))


def _rushes(inputs: Inputs, size: int, grace: int) -> tuple[dict[Any, int], dict[str, Any]]:
    """The sliding windows of the pages that were ever there, and the states behind them."""
    rows, partitions = inputs["clicks"]
    clock = dict.fromkeys(range(partitions), -1)
    came: list[tuple[str, int, int, int]] = []
    for _, page, partition, time in rows:
        clock[partition] = max(clock[partition], time)
        if page != 9 and time + size >= clock[partition] - grace:
            came.append((str(page), time, max(time, clock[partition] - grace), page))
    ever: dict[eddy.Windowed[str], int] = {}
    times = {of: sorted((time, first) for page, time, first, _ in came if page == of) for of, *_ in came}
    for page, time, first_end, _ in came:
        for start in (max(0, time - size), time + 1):
            end = start + size
            near = times[page][bisect_left(times[page], (start,)) : bisect_right(times[page], (end + 1,))]
            n = sum(first <= end for _, first in near)
            if n and first_end <= end:
                ever[eddy.Windowed(page, start, end)] = n
    passed = min(clock.values()) - grace - 1
    kept = [(page, time, first, n) for page, time, first, n in came if time + 1 + size > passed]
    still_open = {window: n for window, n in ever.items() if window.end_ms > passed}
    return ever, {
        "rushes": still_open,
        "rushes-calendar": {(window, window.end_ms): 1 for window in still_open},
        "rushes-records": Counter(
            (page, time.to_bytes(8, "big") + first.to_bytes(8, "big") + eddy.Int64.encode(n))
            for page, time, first, n in kept
        ),
        "rushes-records-calendar": {(page, time + 1 + size): 1 for page, time, _, _ in kept},
        "rushes-records-marks": {
            (to, "clicks", partition): now - grace - 1
            for partition, now in clock.items()
            if now - grace - 1 >= 0
            for to in range(partitions)
        },
    }


PROGRAMS = [
    Program("family", family, {"nodes": "nodes"}, family_event, family_expect),
    Program("circles", circles, {"nodes": "nodes"}, circles_event, circles_expect),
    Program("materials", materials, {"uses": "uses"}, materials_event, materials_expect, (("uses", "p0-p1", 1),)),
    Program(
        *("permissions", permissions, {"members": "members"}, permissions_event, permissions_expect),
        poison=(("members", "m1", "g0"), ("members", "m2", "g0>g1>g2")),
    ),
    Program(
        *("countdown", countdown, {"roots": "roots"}, countdown_event, countdown_expect),
        poison=(("roots", "r1", -1), ("roots", "r3", -2)),
    ),
    Program(
        *("orders", orders, {"placed": "placed", "customers": "customers"}, orders_event, orders_expect),
        poison=(("customers", "c1", ""),),
        bad_rows=(
            *(("customers", "c2", "?"), ("customers", "c3", "?")),
            *(("customers", "c0", "a*"), ("customers", "c4", "a*"), ("customers", "c5", "b*")),
        ),
    ),
    Program(
        *("rooms", rooms, {"readings": "readings"}, rooms_event, rooms_expect),
        poison=(("readings", "s1", -1), ("readings", "s4", -2)),
    ),
    Program(*("nearest", nearest, {"links": "links"}, nearest_event, nearest_expect), poison=(("links", "l1", "p0"),)),
    Program(
        *("sessions", sessions, {"signs": "signs"}, sessions_event, sessions_expect),
        poison=(("signs", "u1", -1), ("signs", "u2", -2)),
        timed=True,
    ),
    Program(
        *("visits", visits, {"came": "came"}, visits_event, visits_expect),
        poison=(("came", "u1", -1), ("came", "u2", -2)),
        bad_rows=(("came", "u3", BORED), ("came", "u0", BORED)),
        timed=True,
    ),
    Program(
        *("clicks", clicks, {"clicks": "clicks"}, clicks_event, clicks_expect),
        poison=(("clicks", "u1", -1), ("clicks", "u2", -2)),
        bad_rows=(("clicks", "u3", BORED), ("clicks", "u0", FULL), ("clicks", "u5", FULL)),
        timed=True,
    ),
]
