"""Programs over time that came later: the simulation runs them from `FIRST_SEED` on, so that earlier seeds stay."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import eddy
from eddy.partitioner import partition_of
from tests.simulation.programs import Event, Expected, Inputs, Program

__all__ = [
    "BURSTS",
    "FIRST_SEED",
    "LASTING",
    "ONCE",
    "PAIRED",
    "RATED",
    "paired",
    "paired_event",
    "paired_expect",
    "rated",
    "rated_event",
    "rated_expect",
]

FIRST_SEED = 10_000


# Lasting: links that are there for a while, and the descendants over those that are there now


def lasting() -> eddy.Topology:
    """Rows (ancestor, 1) over the links whose time has begun and not ended, counted."""
    topology = eddy.Topology("lasting")
    links = topology.table("links", key=eddy.String, value=eddy.Int64)  # node -> begin, span and parent
    live = links.to_relation().valid(clock="event time", from_=_begins, until=_ends, name="live")
    above = live.map(lambda node, link: (_parent(link), 1), key=eddy.String, value=eddy.Int64)
    edges = live.map_values(_parent, value=eddy.String)
    counted = above.recursively(
        lambda rows: rows.join(edges, lambda _, one, parent: (parent, one), name="further"), name="above"
    )
    counted.group_by_key().count("below").to("below", value=eddy.Int64)
    return topology


def _begins(_: str, link: int) -> int:
    return link // 1_000


def _ends(_: str, link: int) -> int:
    return link // 1_000 + link // 100 % 10


def _parent(link: int) -> str:
    return f"n{link % 100}"


def lasting_event(rng: random.Random) -> Event:
    """A node is put below one of a lower number for a while, or goes."""
    node = rng.randrange(1, 9)
    link = rng.randrange(25) * 1_000 + rng.randrange(10) * 100 + rng.randrange(node)
    return "links", f"n{node}", None if rng.random() < 0.1 else link


def lasting_expect(inputs: Inputs) -> Expected:
    """The links whose span has the time of their partition, and a walk up from every node."""
    clock: dict[int, int] = {}
    last: dict[str, tuple[int, int]] = {}
    for node, link, partition, time in inputs["links"].rows:
        clock[partition] = max(clock.get(partition, 0), time)
        last.pop(node, None)
        if link is not None:
            last[node] = link, partition
    good = {node: (link, at) for node, (link, at) in last.items() if link >= 0}
    spans = {node: (_begins(node, link), _ends(node, link), clock[at]) for node, (link, at) in good.items()}
    parents = {node: _parent(last[node][0]) for node, (begin, end, now) in spans.items() if begin <= now < end}
    ancestors: Counter[tuple[str, int]] = Counter()
    for node in parents:
        above: str | None = node
        while (above := parents.get(above)) is not None:  # type: ignore[arg-type]
            ancestors[above, 1] += 1
    nexts = {
        node: begin if now < begin else end for node, (begin, end, now) in spans.items() if begin < end and now < end
    }
    below = {node: n for (node, _), n in ancestors.items()}
    states = {
        "links": {node: link for node, (link, _) in last.items()},
        "live-rows": {(node, last[node][0]): 1 for node in nexts},
        "live-moments": nexts,
        "live-calendar": dict.fromkeys(nexts.items(), 1),
        "above": dict(ancestors),
        "further-right": dict.fromkeys(parents.items(), 1),
        "below": below,
    }
    return Expected({"below": below}, states, len(last) - len(good))


# Rated: orders with the rate of their currency at their time, after an exchange

HISTORY_MS, GRACE_MS = 2, 1


def rated(of_run: Callable[[str], str] = str, scale: int = 1) -> eddy.Topology:
    """Each order with the rate that its currency had, once that is final; `scale`: the milliseconds of one."""
    topology = eddy.Topology(of_run("rated"))
    orders = topology.stream(of_run("orders"), key=eddy.String, value=eddy.Int64)  # order -> currency
    rates = topology.stream(of_run("rates"), key=eddy.String, value=eddy.Int64)  # currency -> rate
    asked = orders.filter(_is_currency).select_key(lambda order, currency: str(currency), key=eddy.String)
    history, grace = (timedelta(milliseconds=n * scale) for n in (HISTORY_MS, GRACE_MS))
    joined = asked.left_join(rates, _pair, eddy.AsOf(history, grace=grace), name="rated", value=eddy.Native)
    joined.to(of_run("rated"), key=eddy.String, value=eddy.Native)
    return topology


def _pair(one: Any, other: Any) -> tuple[Any, Any]:
    return one, other


def _is_currency(order: str, currency: int) -> bool:
    if currency < 0:
        raise ValueError("nothing is below 0")
    return currency != 9


def rated_event(rng: random.Random) -> Event:
    """An order in a currency, 9 of which only lets time pass; or a rate that comes, changes or goes."""
    if rng.random() < 0.5:
        return "orders", f"o{rng.randrange(8)}", rng.choice([1, 1, 2, 3, 9])
    return "rates", rng.choice("1239"), None if rng.random() < 0.2 else rng.randrange(100)


def rated_expect(inputs: Inputs, scale: int = 1) -> Expected:
    """Topic by topic what is not late; then the last rate up to each order's time, if no earlier one can come."""
    orders, partitions = inputs["orders"]
    history, grace = HISTORY_MS * scale, GRACE_MS * scale
    past: dict[str, Any] = {"orders": dict.fromkeys(range(partitions), -1)}
    past["rates"] = dict(past["orders"])
    asked: list[tuple[str, int]] = []
    for _, currency, partition, time in orders:
        past["orders"][partition] = max(past["orders"][partition], time)
        if currency != 9 and past["orders"][partition] <= time + history:
            asked.append((str(currency), time))
    versions: dict[str, dict[int, int | None]] = {}
    for currency, rate, partition, time in inputs["rates"].rows:
        past["rates"][partition] = max(past["rates"][partition], time)
        if past["rates"][partition] <= time + grace:
            versions.setdefault(currency, {})[time] = rate
    joined: Counter[tuple[str, tuple[int, int | None]]] = Counter()
    waiting: Counter[tuple[str, int]] = Counter()
    for currency, time in asked:
        if past["rates"][partition_of(currency.encode(), partitions)] <= time + grace:
            waiting[currency, time] += 1
            continue
        known = [at for at in versions.get(currency, {}) if at <= time]
        joined[currency, (int(currency), versions[currency][max(known)] if known else None)] += 1
    least = min(past["orders"].values()) - history - 1
    final = {
        currency: min(least, past["rates"][partition_of(currency.encode(), partitions)] - grace - 1)
        for currency in versions
    }
    states = {
        "rated-waiting": {(_at(*place), int(place[0])): n for place, n in waiting.items()},
        "rated-waiting-calendar": {(_at(*place), place[1]): 1 for place in waiting},
        "rated-marks": {
            (to, "orders", partition): now - history - 1
            for partition, now in past["orders"].items()
            if now - history - 1 >= 0
            for to in range(partitions)
        },
    }
    return Expected({"rated": joined}, states | _versions(versions, final))


def _at(currency: str, time: int) -> eddy.Windowed[str]:
    return eddy.Windowed(currency, time, time)


def _versions(versions: dict[str, dict[int, int | None]], final: dict[str, int]) -> dict[str, dict[Any, Any]]:
    """Of each currency all rates after the moment up to which they are final, and the last one before, if it is one."""
    kept: dict[Any, int] = {}
    noted: dict[Any, int] = {}
    for currency, rates in versions.items():
        old = [time for time in rates if time <= final[currency]]
        for time, rate in rates.items():
            if time > final[currency]:
                noted[_at(currency, time), time] = 1
            if time > final[currency] or (time == max(old) and rate is not None):
                kept[_at(currency, time), (rate,)] = 1
    return {"rated-versions": kept, "rated-versions-calendar": noted}


# Paired: questions and answers within a span, each alone once nothing can match it, questions after an exchange

BEFORE_MS, AFTER_MS = 1, 3


def paired(of_run: Callable[[str], str] = str, scale: int = 1) -> eddy.Topology:
    """Questions with the answers of their room that are near in time, and those without any; `scale` as in `rated`."""
    topology = eddy.Topology(of_run("paired"))
    questions = topology.stream(of_run("questions"), key=eddy.String, value=eddy.Int64)  # user -> room
    answers = topology.stream(of_run("answers"), key=eddy.String, value=eddy.Int64)  # room -> number
    asked = questions.filter(_is_currency).select_key(lambda user, room: str(room), key=eddy.String)
    spans = (timedelta(milliseconds=n * scale) for n in (AFTER_MS, BEFORE_MS, AFTER_MS, GRACE_MS))
    joined = asked.outer_join(answers, _pair, eddy.JoinWindows(*spans), name="paired", value=eddy.Native)
    joined.to(of_run("paired"), key=eddy.String, value=eddy.Native)
    return topology


def paired_event(rng: random.Random) -> Event:
    """A question in a room, of which 9 only lets time pass; or an answer."""
    if rng.random() < 0.5:
        return "questions", f"u{rng.randrange(8)}", rng.choice([1, 1, 2, 3, 9])
    return "answers", rng.choice("1239"), rng.randrange(100)


def paired_expect(inputs: Inputs, scale: int = 1) -> Expected:
    """All pairs that are near, and what has no pair and is passed by all that could match it."""
    questions, partitions = inputs["questions"]
    before, after, grace = BEFORE_MS * scale, AFTER_MS * scale, GRACE_MS * scale
    past: dict[str, dict[int, int]] = {side: dict.fromkeys(range(partitions), -1) for side in inputs}
    sides: dict[str, list[tuple[str, int, int]]] = {side: [] for side in inputs}
    for side, spread, rows in (
        ("questions", after, [(str(room), room, at, time) for _, room, at, time in questions if room is not None]),
        ("answers", before, inputs["answers"].rows),
    ):
        for room, value, partition, time in rows:
            past[side][partition] = max(past[side][partition], time)
            if past[side][partition] <= time + spread + grace and (room, side) != ("9", "questions"):
                sides[side].append((room, value, time))
    joined: Counter[tuple[str, tuple[int | None, int | None]]] = Counter()
    matched: dict[str, set[int]] = {side: set() for side in inputs}
    for i, (room, value, time) in enumerate(sides["questions"]):
        for j, (other, number, when) in enumerate(sides["answers"]):
            if room == other and time - before <= when <= time + after:
                joined[room, (value, number)] += 1
                matched["questions"].add(i)
                matched["answers"].add(j)
    for side, other, reach, back in (
        ("questions", "answers", after, before),
        ("answers", "questions", before, after),
    ):
        for i, (room, value, time) in enumerate(sides[side]):
            homes = [partition_of(room.encode(), partitions)] if other == "answers" else range(partitions)
            if i not in matched[side] and all(past[other][p] - back - grace > time + reach for p in homes):
                joined[room, (value, None) if side == "questions" else (None, value)] += 1
    return Expected({"paired": joined}, {}, holds=True)


# Once: calls and texts of a number once within a span, over all partitions, and calls of a user once

WITHIN_MS = 3


def once(of_run: Callable[[str], str] = str, scale: int = 1) -> eddy.Topology:
    """The first call or text of each number, and the first call of each user; `scale` as in `rated`."""
    topology = eddy.Topology(of_run("once"))
    calls, texts = (topology.stream(of_run(name), key=eddy.String, value=eddy.Int64) for name in ("calls", "texts"))
    spans = {"within": timedelta(milliseconds=WITHIN_MS * scale), "grace": timedelta(milliseconds=GRACE_MS * scale)}
    calls = calls.filter(_is_currency)
    both = calls.merge(texts.filter(_is_currency))
    first = both.deduplicate(lambda user, number: number, **spans, name="first", key=eddy.Int64)
    first.to(of_run("first"), key=eddy.String, value=eddy.Int64)
    calls.deduplicate(**spans, name="user").to(of_run("user"), key=eddy.String, value=eddy.Int64)
    return topology


def once_event(rng: random.Random) -> Event:
    """A call or a text of a user to a number, of which 9 only lets time pass."""
    return rng.choice(["calls", "texts"]), f"u{rng.randrange(5)}", rng.choice([1, 1, 2, 3, 9])


def once_expect(inputs: Inputs, scale: int = 1) -> Expected:
    """In the order of partitions' times those that have none near them that passed, as far as the order is known."""
    partitions = inputs["calls"].partitions
    past = {(topic, partition): -1 for topic in sorted(inputs) for partition in range(partitions)}
    found: list[tuple[tuple[int, str, int, int], str, int, int]] = []
    for topic in sorted(inputs):
        for nth, (user, number, partition, time) in enumerate(inputs[topic].rows):
            now = past[topic, partition] = max(past[topic, partition], time)
            if number != 9 and now < time + (WITHIN_MS + GRACE_MS) * scale:
                found.append(((now, topic, partition, nth), user, number, time))
    known = min((now, topic, partition) for (topic, partition), now in past.items())
    first = [(number, user, number, time) for order, user, number, time in sorted(found) if order[:3] <= known]
    calls = [(user, user, number, time) for order, user, number, time in sorted(found) if order[1] == "calls"]
    passed, kept = _passed(first, scale)
    of_users, _ = _passed(calls, scale)
    span = (2 * WITHIN_MS + GRACE_MS) * scale
    left = {by: tuple(time for time in sorted(times) if time + span > known[0]) for by, times in kept.items()}
    states = {
        "first-passed": {by: times for by, times in left.items() if times},
        "first-calendar": {(by, times[0] + span): 1 for by, times in left.items() if times},
    }
    return Expected({"first": passed, "user": of_users}, states, holds=True)


def _passed(rows: list[tuple[Any, str, int, int]], scale: int) -> tuple[Counter[tuple[str, int]], dict[Any, list[int]]]:
    """The rows of which none with the same first part has passed near them, and the times by this part."""
    passed: Counter[tuple[str, int]] = Counter()
    kept: dict[Any, list[int]] = {}
    for by, user, number, time in rows:
        times = kept.setdefault(by, [])
        if all(abs(time - other) >= WITHIN_MS * scale for other in times):
            times.append(time)
            passed[user, number] += 1
    return passed, kept


# Bursts: sessions, which merge, in the partitions of their source and after an exchange

GAP_MS, LATE_MS, KEPT_MS = 1, 4, 3


def bursts() -> eddy.Topology:
    """Posts of each user in each session, at each change; and sums by room, once when their sessions close."""
    topology = eddy.Topology("bursts")
    posts = topology.stream("posts", key=eddy.String, value=eddy.Int64).filter(_is_currency)  # user -> room, points
    gap, grace, kept = (timedelta(milliseconds=n) for n in (GAP_MS, LATE_MS, KEPT_MS))
    sessions = eddy.SessionWindows(gap, grace)
    by_user = posts.group_by_key().windowed_by(sessions, retention=kept).count("by-user")
    by_user.to("by-user", value=eddy.Int64)
    rooms = posts.group_by(_room, key=eddy.String).windowed_by(sessions, emit="close")
    rooms.sum("by-room", value=eddy.Int64).to_stream().to("by-room", value=eddy.Int64)
    return topology


def _room(user: str, post: int) -> str:
    return str(post // 10)


def bursts_event(rng: random.Random) -> Event:
    """A user posts in a room for points; post 9 only lets time pass."""
    return "posts", f"u{rng.randrange(1, 3)}", rng.choice([9, 10, 11, 12, 21, 22, 23, 35])


def bursts_expect(inputs: Inputs) -> Expected:
    """What is not late by its own partition, in the order of time, cut where there is a gap."""
    rows, partitions = inputs["posts"]
    lag = GAP_MS + LATE_MS + 1
    past = dict.fromkeys(range(partitions), -1)
    homes: dict[str, int] = {}
    of_user: dict[str, list[tuple[int, int]]] = {}
    of_room: dict[str, list[tuple[int, int]]] = {}
    for user, post, partition, time in rows:
        past[partition] = max(past[partition], time)
        if post != 9 and past[partition] < time + lag:
            homes[user] = partition
            of_user.setdefault(user, []).append((time, post))
            of_room.setdefault(str(post // 10), []).append((time, post))
    by_user, by_room = _sessions(of_user), _sessions(of_room)
    least = min(past.values()) - lag
    ends = {session: session.end_ms + GAP_MS for session in by_room}
    there = {session: end for session, end in ends.items() if least < end}
    kept = {
        session: session.end_ms + GAP_MS + KEPT_MS
        for session in by_user
        if past[homes[session.key]] - lag < session.end_ms + GAP_MS + KEPT_MS
    }
    states = {
        "by-user": {session: len(by_user[session]) for session in kept},
        "by-user-open": _spans(kept),
        "by-user-calendar": dict.fromkeys(kept.items(), 1),
        "by-room": {session: sum(by_room[session]) for session in there},
        "by-room-totals": {
            session: f"{len(by_room[session]):x} 0 0 0 0 0 {sum(by_room[session]):x} 1" for session in there
        },
        "by-room-open": _spans(there),
        "by-room-calendar": dict.fromkeys(there.items(), 1),
        "by-room-marks": {
            (to, "posts", partition): now - lag
            for partition, now in past.items()
            if now >= lag
            for to in range(partitions)
        },
    }
    sinks = {
        "by-user": {session: len(posts) for session, posts in by_user.items()},
        "by-room": Counter((session, sum(posts)) for session, posts in by_room.items() if session not in there),
    }
    return Expected(sinks, states)


def _sessions(posts_of: dict[str, list[tuple[int, int]]]) -> dict[eddy.Windowed[str], list[int]]:
    """The posts of each session."""
    found: dict[eddy.Windowed[str], list[int]] = {}
    for key, posts in posts_of.items():
        session: list[tuple[int, int]] = []
        for post, (following, _) in zip(sorted(posts), [*sorted(posts)[1:], (1 << 62, 0)], strict=True):
            session.append(post)
            if following > post[0] + GAP_MS:
                found[eddy.Windowed(key, session[0][0], post[0])] = [points for _, points in session]
                session = []
    return found


def _spans(sessions: dict[eddy.Windowed[str], int]) -> dict[str, tuple[tuple[int, int], ...]]:
    """The spans of each key's sessions, the first one first."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for key, start, end in sessions:
        spans.setdefault(key, []).append((start, end))
    return {key: tuple(sorted(found)) for key, found in spans.items()}


LASTING = Program(
    *("lasting", lasting, {"links": "links"}, lasting_event, lasting_expect),
    bad_rows=(("links", "n1", -1), ("links", "n4", -20_000)),
    timed=True,
)
RATED = Program(
    *("rated", rated, {"orders": "orders", "rates": "orders"}, rated_event, rated_expect),
    poison=(("orders", "o1", -1), ("orders", "o2", -2)),
    timed=True,
)
PAIRED = Program(
    *("paired", paired, {"questions": "questions", "answers": "questions"}, paired_event, paired_expect),
    poison=(("questions", "u1", -1), ("questions", "u2", -2)),
    timed=True,
)
ONCE = Program(
    *("once", once, {"calls": "calls", "texts": "calls"}, once_event, once_expect),
    poison=(("calls", "u1", -1), ("texts", "u2", -2)),
    timed=True,
)
BURSTS = Program(
    *("bursts", bursts, {"posts": "posts"}, bursts_event, bursts_expect),
    poison=(("posts", "u1", -1), ("posts", "u2", -2)),
    timed=True,
)
