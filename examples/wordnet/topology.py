"""The nouns of WordNet: for every concept, how many lie below it, with its name."""

import msgspec

import eddy


class Concept(msgspec.Struct, frozen=True):
    """What the topic says of a concept: its name, and the id of the concept it is a kind of."""

    name: str
    parent: str | None = None


class Size(msgspec.Struct, frozen=True):
    """What comes out for a concept."""

    name: str
    descendants: int


topology = eddy.Topology("wordnet")

concepts = topology.table("concepts", key=eddy.String, value=eddy.Struct(Concept))
children = concepts.to_relation().filter(lambda _, concept: concept.parent is not None)
descendants = (
    children.map(lambda _, concept: (concept.parent or "", 1))
    .recursively(
        lambda above: above.join(concepts, lambda _, one, concept: (concept.parent or "", one)).filter(
            lambda parent, _: parent  # a root has none
        ),
        name="ancestors",
    )
    .group_by_key()
    .count("descendants")
)
sizes = descendants.join(concepts, lambda count, concept: Size(concept.name, count), value=eddy.Struct(Size))
sizes.to("sizes")
