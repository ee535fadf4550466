"""A picture of a plan, as SVG: layers from the sources at the top to the sinks, and the feedback of loops beside them.

    layer(step) = 1 + the largest layer of its inputs; a variable is below the seed of its recursion

An edge that passes several layers has a *bend* in each layer between, which takes up space there. Each layer is sorted
by the mean position of the neighbours in the next layer, in several passes from the top and from the bottom. Colours
are presentation attributes, which a style sheet can override. Each step is a group with its number in `data-step`.
"""

import html
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from eddy.topology.plan.description import successors
from eddy.topology.plan.plan import Node, Plan
from eddy.topology.plan.scopes import Scopes
from eddy.topology.plan.stores import stores_of

__all__ = ["PictureStep", "picture", "steps"]

_ROW, _HEIGHT, _GAP, _BEND = 62, 30, 22, 14
_SWEEPS = 8
_CHARACTER = 7.2
_MARGIN = 24


class PictureStep(msgspec.Struct, frozen=True):
    """One step of a plan, as data for a picture.

    `to` has the numbers of the steps that read this step. If the step is a loop's result, `back` has the numbers of the
    loop's variables to which its rows are fed back.
    """

    name: str
    title: str
    form: str
    topic: str | None
    stores: list[str]
    strategy: str | None
    loop: str | None
    to: list[int]
    back: list[int]


def steps(plan: Plan) -> list[PictureStep]:
    """Return the steps of a plan as data, in the plan's order."""
    after, stores, around = successors(plan), stores_of(plan), Scopes(plan).around
    numbers = {node: number for number, node in enumerate(plan.nodes)}
    back_to = {variable for loop in plan.loops() for variable in loop.variables}
    found = []
    for node in plan.nodes:
        loop = around.get(node)
        back = [numbers[other] for other in after[node] if other in back_to]
        found.append(
            PictureStep(
                node.name,
                node.title,
                node.drawn_as,
                node.user_topic or node.internal_topic(plan.name),
                stores.get(node.name, []),
                node.strategy,
                None if loop is None else loop.name,
                [numbers[other] for other in after[node] if other not in back_to],
                back,
            )
        )
    return found


@dataclass(eq=False, slots=True)
class _DrawnPlace:
    """The place of a step, or of an edge's bend, in a layer; `x` is its centre."""

    width: float
    layer: int
    step: int | None = None
    x: float = 0.0
    above: list["_DrawnPlace"] = field(default_factory=list)
    below: list["_DrawnPlace"] = field(default_factory=list)


def picture(plan: Plan) -> str:
    """Return the plan as an SVG document."""
    found = steps(plan)
    places, ways = _places(plan, found)
    layers: list[list[_DrawnPlace]] = [
        [] for _ in range(1 + max((place.layer for place in _all(places, ways)), default=0))
    ]
    for place in _all(places, ways):
        layers[place.layer].append(place)
    _arrange(layers)
    left = min((place.x - place.width / 2 for place in places), default=0.0) - _MARGIN
    for place in _all(places, ways):
        place.x -= left
    return _drawn(found, places, ways, len(layers))


def _all(places: list[_DrawnPlace], ways: list[list[_DrawnPlace]]) -> list[_DrawnPlace]:
    return [*places, *(bend for way in ways for bend in way[1:-1])]


def _places(plan: Plan, found: list[PictureStep]) -> tuple[list[_DrawnPlace], list[list[_DrawnPlace]]]:
    """Return the place of each step, and the places through which each edge passes."""
    layer: dict[Node, int] = {}
    seeds = {variable: loop.inputs for loop in plan.loops() for variable in loop.variables}
    for node in plan.nodes:
        before = [layer[source] for source in node.inputs if source in layer]
        if node in seeds:
            before = [layer[source] for source in seeds[node] if source in layer]
        before += [layer[result] for result in node.results]
        layer[node] = 1 + max(before, default=-1)
    places = [
        _DrawnPlace(len(step.title) * _CHARACTER + 24, layer[node], number)
        for number, (node, step) in enumerate(zip(plan.nodes, found, strict=True))
    ]
    ways = []
    for number, step in enumerate(found):
        for other in step.to:
            ways.append(_way(places[number], places[other]))
    return places, ways


def _way(start: _DrawnPlace, end: _DrawnPlace) -> list[_DrawnPlace]:
    bends = [_DrawnPlace(_BEND, layer) for layer in range(start.layer + 1, end.layer)]
    way = [start, *bends, end]
    for one, other in pairwise(way):
        one.below.append(other)
        other.above.append(one)
    return way


def _arrange(layers: list[list[_DrawnPlace]]) -> None:
    """Set the x of each place, near its neighbours and without an overlap in its layer."""
    for layer in layers:
        _spread(layer, {place: place.x for place in layer})
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            wanted = {}
            for place in layer:
                near = (place.above if downwards else place.below) or (place.below if downwards else place.above)
                wanted[place] = sum(other.x for other in near) / len(near) if near else place.x
            layer.sort(key=lambda place: wanted[place])
            _spread(layer, wanted)


def _spread(layer: list[_DrawnPlace], wanted: dict[_DrawnPlace, float]) -> None:
    """Put the places at their wanted x, or further right if they overlap; then move all back by the mean difference."""
    right = float("-inf")
    for place in layer:
        place.x = max(wanted[place], right + _GAP + place.width / 2)
        right = place.x + place.width / 2
    shift = sum(place.x - wanted[place] for place in layer) / max(1, len(layer))
    for place in layer:
        place.x -= shift


def _drawn(found: list[PictureStep], places: list[_DrawnPlace], ways: list[list[_DrawnPlace]], layers: int) -> str:
    backs = [(number, other) for number, step in enumerate(found) for other in step.back]
    right = max((place.x + place.width / 2 for place in _all(places, ways)), default=0.0)
    width, height = right + _MARGIN + 14 * len(backs) + 10 * bool(backs), layers * _ROW - _ROW + _HEIGHT + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="ui-sans-serif, system-ui, sans-serif" font-size="12.5" '
        'text-anchor="middle">',
        '<defs><marker id="eddy-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#8a94a3"/></marker></defs>',
        *(_edge(way) for way in ways),
        *(
            _back(places[one], places[other], right + 12 + 14 * index, 4 * index % 12)
            for index, (one, other) in enumerate(backs)
        ),
        *(_box(number, step, places[number]) for number, step in enumerate(found)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _top(place: _DrawnPlace) -> float:
    return place.layer * _ROW + _MARGIN


def _edge(way: list[_DrawnPlace]) -> str:
    points = [(way[0].x, _top(way[0]) + _HEIGHT)]
    points += [(bend.x, _top(bend) + _HEIGHT / 2) for bend in way[1:-1]]
    points.append((way[-1].x, _top(way[-1]) - 1))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (x2, y2) in pairwise(points):
        middle = (y + y2) / 2
        path += f"C{x:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    return (
        f'<path class="edge" d="{path}" fill="none" stroke="#8a94a3" stroke-width="1.3" marker-end="url(#eddy-tip)"/>'
    )


def _back(start: _DrawnPlace, end: _DrawnPlace, x: float, lane: int) -> str:
    """Return the feedback edge of a loop: it runs out to the right, up in a lane of its own, and in from above."""
    y, y2 = _top(start) + _HEIGHT - 8 - lane, _top(end) - 11 - lane
    one, r = start.x + start.width / 2, 8
    path = (
        f"M{one:.1f} {y:.1f}H{x - r:.1f}q{r} 0 {r} {-r}V{y2 + r:.1f}q0 {-r} {-r} {-r}H{end.x + r:.1f}"
        f"q{-r} 0 {-r} {r}V{_top(end) - 1:.1f}"
    )
    return (
        f'<path class="back" d="{path}" fill="none" stroke="#d9822b" stroke-width="1.6" stroke-dasharray="5 4" '
        'marker-end="url(#eddy-tip)"/>'
    )


def _box(number: int, step: PictureStep, place: _DrawnPlace) -> str:
    colour = {"topic": "#2f7de1", "recursion": "#d9822b", "variable": "#d9822b"}.get(step.form, "#8a94a3")
    x, y, w = place.x - place.width / 2, _top(place), place.width
    radius = {"topic": 5, "recursion": 15, "variable": 15}.get(step.form, 3)
    inside = " inside" if step.loop is not None else ""
    return (
        f'<g class="node {step.form}{inside}" data-step="{number}"><title>{html.escape(step.name)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{_HEIGHT}" rx="{radius}" fill="{colour}" '
        f'fill-opacity=".13" stroke="{colour}" stroke-width="1.3"/>'
        f'<text x="{place.x:.1f}" y="{y + 19.5:.1f}" fill="currentColor">{html.escape(step.title)}</text></g>'
    )
