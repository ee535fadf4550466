"""Descriptions of a plan: as text, like Kafka Streams' `TopologyDescription`, and as a Mermaid flowchart."""

from eddy.topology.plan.plan import Node, Plan
from eddy.topology.plan.stores import stores_of

__all__ = ["describe", "mermaid", "successors"]


def successors(plan: Plan) -> dict[Node, list[Node]]:
    """Return the downstream nodes of each node. The variable of a recursion is downstream of the recursion's result."""
    after: dict[Node, list[Node]] = {node: [] for node in plan.nodes}
    for node in plan.nodes:
        for source in node.inputs:
            after[source].append(node)
        for result, variable in zip(node.results, node.variables, strict=True):
            after[result].append(node)
            after[node].append(variable)
    return after


def describe(plan: Plan) -> str:
    """Return the plan as text: sub-topologies, and each step with its stores and its neighbours."""
    after = successors(plan)
    before: dict[Node, list[Node]] = {node: [] for node in plan.nodes}
    for node, nexts in after.items():
        for other in nexts:
            before[other].append(node)
    stores = stores_of(plan)
    lines = ["Topologies:"]
    for number, members in enumerate(_components(plan, after)):
        lines.append(f"   Sub-topology: {number}")
        for node in members:
            lines.append(f"    {node.headline(plan.name, stores.get(node.name, []))}")
            if node.role != "sink":
                lines.append(f"      --> {_names(after[node])}")
            if node.role != "source":
                lines.append(f"      <-- {_names(before[node])}")
            if node.strategy:
                lines.append(f"      strategy: {node.strategy}")
    return "\n".join(lines) + "\n"


def _names(nodes: list[Node]) -> str:
    return ", ".join(node.name for node in nodes) or "none"


def _components(plan: Plan, after: dict[Node, list[Node]]) -> list[list[Node]]:
    """Return the groups of connected nodes, in the order in which the author wrote them."""
    component = {node: index for index, node in enumerate(plan.nodes)}
    for node, nexts in after.items():
        for other in nexts:
            low, high = sorted((component[node], component[other]))
            component = {n: low if c == high else c for n, c in component.items()}
    groups: dict[int, list[Node]] = {}
    for node in plan.nodes:
        groups.setdefault(component[node], []).append(node)
    return list(groups.values())


def mermaid(plan: Plan) -> str:
    """Return the plan as a Mermaid flowchart: topics are cylinders, loops are dotted arrows back."""
    ids = {node: f"n{index}" for index, node in enumerate(plan.nodes)}
    lines = ["flowchart TD"]
    lines += [f"  {name}{node.shape}" for node, name in ids.items()]
    for node, nexts in successors(plan).items():
        for other in nexts:
            arrow = "-. back .->" if other in node.variables else "-->"
            lines.append(f"  {ids[node]} {arrow} {ids[other]}")
    return "\n".join(lines) + "\n"
