"""The conformance cases of rows that are true for a while. Record number n has timestamp n."""

import eddy
from tests.conformance.case import N, S, case, of

__all__ = ["SEEN"]

SEEN = [("a-b", "0 900"), ("b-c", "0 9"), ("c-d", "300 900"), ("b-e", "0 900"), ("e-a", "5 5")]
"""Links, and from when until when they are there."""


def moment(value: str, at: int) -> int:
    return int(value.split()[at])


@case(
    [of("links", *SEEN), of("links", *[("b-c", "tick")] * 9), of("links", ("b-e", None), ("b-f", "0 800"))],
    live={"a-b": "0 900", "b-f": "0 800"},
    reached={"a>b": 1, "b>f": 1, "a>f": 1},
)
def who_reaches_whom_over_links_that_are_there(t: eddy.Topology) -> None:
    links = t.stream("links", S, S).filter(lambda link, value: value != "tick").to_table("links-table").to_relation()
    live = links.valid(
        clock="event time",
        from_=lambda link, value: moment(value, 0),
        until=lambda link, value: moment(value, 1),
        name="live",
    )
    live.to_table("live-table").to("live")
    steps = live.map(lambda link, _: (link[0], link[2]), key=S, value=S)
    pairs = steps.recursively(
        lambda found: (
            found.map(lambda one, other: (other, one), key=S, value=S)
            .join(steps, lambda _, one, other: (one, other), "step", S, S)
            .distinct("once")
        ),
        "reaching",
    )
    pairs.map(lambda one, other: (f"{one}>{other}", 1), key=S, value=N).group_by_key().count("pairs").to("reached")
