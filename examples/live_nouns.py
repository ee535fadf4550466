"""WordNet's nouns while subtrees move: a live tree with counts, and by which record each noun has moved.

nouns    id -> {"name", "parent"}: a later record of a noun with another parent moves it, with all below it
tree     id -> {"name", "parent", "descendants", "moves", "at", "moved"}
"""

import eddy

topology = eddy.Topology("wordnet-live")


def placed(noun, record):
    """A noun with the place and the timestamp of its record."""
    return noun | {"by": f"{record.topic}-{record.partition}@{record.offset}", "at": record.timestamp_ms}


def latest_of(key, noun, former):
    """A noun after a record: where it was before its latest move, and how often it has moved."""
    if former is None:
        return {"name": noun["name"], "parent": noun["parent"], "moves": 0, "was": None, "by": "", "at": 0}
    if noun["parent"] == former["parent"]:
        return former | {"name": noun["name"]}
    return former | noun | {"moves": former["moves"] + 1, "was": former["parent"]}


nouns = (
    topology.stream("nouns", key=eddy.String, value=eddy.Json())
    .map_values(placed, value=eddy.Json())
    .group_by_key()
    .aggregate(lambda: None, latest_of, "latest", value=eddy.Json())
)
descendants = (
    nouns.to_relation()
    .filter(lambda _, noun: noun["parent"] is not None)
    .map(lambda _, noun: (noun["parent"], 1))
    .recursively(
        lambda above: above.join(nouns, lambda _, one, noun: (noun["parent"], one)).filter(
            lambda parent, _: parent is not None  # a root has none
        ),
        name="ancestors",
    )
    .group_by_key()
    .count("descendants")
)


def shown(noun, former):
    """A row of the tree: of a noun that has moved, the name of its former parent, and the record."""
    moved = "never" if former is None else f"from {former['name']}, by record {noun['by']}"
    return {name: noun[name] for name in ("name", "parent", "descendants", "moves", "at")} | {"moved": moved}


(
    nouns.left_join(descendants, lambda noun, count: noun | {"descendants": count or 0}, value=eddy.Json())
    .foreign_key_left_join(nouns, lambda noun: noun["was"], shown, name="former-parents", value=eddy.Json())
    .to("tree", key=eddy.String, value=eddy.Json())
)

rows = eddy.live_table("tree", key="id")
queries = eddy.Queries()


def children(noun):
    below = rows.where(rows.parent == noun.id).order_by(rows.name)
    return below.select(rows.id, rows.name, rows.descendants, rows.moved).nest(children=children)


@queries.query
def tree() -> eddy.Query:
    """All nouns, from the most general one."""
    return rows.where(rows.parent.is_null()).select(rows.id, rows.name, rows.descendants).nest(children=children)


def arrivals(noun):
    below = rows.where(rows.parent == noun.id).order_by(-rows.at, -rows.descendants).limit(4)
    return below.select(rows.id, rows.name, rows.descendants, rows.moved).nest(arrivals=arrivals)


@queries.query
def fastest(most: int = 6) -> eddy.Query:
    """The nouns that have moved most often, each with the four nouns that moved below it last, or are largest there."""
    fast = rows.where(rows.moves > 0).order_by(-rows.moves, rows.name).limit(most)
    return fast.select(rows.id, rows.name, rows.descendants, rows.moves, rows.moved).nest(arrivals=arrivals)
