"""Pictures of a plan: Kafka Streams' `TopologyDescription`, and a Mermaid flowchart."""

from eddy.operators.fact_waves import FactWaves
from eddy.operators.fixpoint import Fixpoint
from eddy.operators.recursion import Waves
from eddy.topology.compile import Environment, compile_plan
from eddy.topology.plan import Block, Exchange, Node, Plan, Reachable, Recursion, Sink, Source, TreeTotals, Variable
from eddy.topology.scopes import Loop

__all__ = ["describe", "internal_topic", "mermaid", "stores_of", "strategy", "successors"]


def strategy(node: Loop | Reachable | TreeTotals) -> str:
    """How a recursion is computed, and why."""
    if isinstance(node, Reachable):
        how = "their number kept" if node.counted else "found again where the parent goes"
        why = "shortest paths over weights above 0" if node.weight else "least depths"
        return f"ranked supports (F1), {how}, at one owner, since {why} fall along supports, through cycles too"
    if isinstance(node, TreeTotals):
        return "tree totals by deltas (F2), at one owner, since a node has one parent and sums can be taken back"
    where = (
        "at one owner" if node.variables[0].single_partition else "each owner its keys, which no step inside changes"
    )
    if isinstance(node, Block):
        return f"nested time, since its bindings are evaluated in turn; {where}"
    if node.nested:
        return f"nested time, since {node.nested}; {where}"
    if node.kind == "stream":
        return "waves of facts, since a KStream's records are never taken back"
    if node.bound.by_depth:
        return f"waves by depth up to {node.bound.depth}, since the answer depends on the depth of rows"
    return "waves, since op is linear"


def stores_of(plan: Plan) -> dict[str, list[str]]:
    """The stores of each step, by its name, as the compiler makes them."""
    topics = {source.topic: 1 for source in plan.sources()}
    circuit = compile_plan(plan, Environment(topics))
    steps = {node.name for node in plan.nodes}
    stores: dict[str, list[str]] = {}
    for operator in circuit.operators:
        name = operator.name
        if name not in steps:  # made for a join: <join>-left, <join>-right
            name = name.removesuffix("-left").removesuffix("-right")
        own = operator.own_states() if isinstance(operator, Waves | FactWaves | Fixpoint) else operator.states()
        stores.setdefault(name, []).extend(state.spec.name for state in own)
    return stores


def successors(plan: Plan) -> dict[Node, list[Node]]:
    """The downstream nodes of each node; a recursion's result leads back to its variable."""
    after: dict[Node, list[Node]] = {node: [] for node in plan.nodes}
    for node in plan.nodes:
        for source in node.inputs:
            after[source].append(node)
        if isinstance(node, Recursion | Block):
            for result, variable in zip(node.results, node.variables, strict=True):
                after[result].append(node)
                after[node].append(variable)
    return after


def describe(plan: Plan) -> str:
    """The plan as text: sub-topologies, each step with its stores and its neighbours."""
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
            lines.append(f"    {_headline(plan, node, stores.get(node.name, []))}")
            if not isinstance(node, Sink):
                lines.append(f"      --> {_names(after[node])}")
            if not isinstance(node, Source):
                lines.append(f"      <-- {_names(before[node])}")
            if isinstance(node, Recursion | Block | Reachable | TreeTotals):
                lines.append(f"      strategy: {strategy(node)}")
    return "\n".join(lines) + "\n"


def _headline(plan: Plan, node: Node, stores: list[str]) -> str:
    if isinstance(node, Source):
        store = f", store: {', '.join(stores)}" if stores else ""
        return f"Source: {node.name} (topics: [{node.topic}]{store})"
    if isinstance(node, Sink):
        return f"Sink: {node.name} (topic: {node.topic})"
    topic = internal_topic(plan, node)
    through = f", topic: {topic}" if topic else ""
    return f"Processor: {node.name} (stores: [{', '.join(stores)}]{through})"


def internal_topic(plan: Plan, node: Node) -> str | None:
    """The topic through which a step's rows reach other owners, None where there is none."""
    if isinstance(node, Exchange):
        return f"{plan.name}-{node.name}"
    return f"{plan.name}-{node.name}-loop" if isinstance(node, Recursion) and not node.nested else None


def _names(nodes: list[Node]) -> str:
    return ", ".join(node.name for node in nodes) or "none"


def _components(plan: Plan, after: dict[Node, list[Node]]) -> list[list[Node]]:
    """Connected nodes, in the order written."""
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
    """The plan as a Mermaid flowchart: topics as cylinders, loops as dotted arrows back."""
    ids = {node: f"n{index}" for index, node in enumerate(plan.nodes)}
    lines = ["flowchart TD"]
    for node, name in ids.items():
        if isinstance(node, (Source, Sink)):
            lines.append(f"  {name}[({node.topic})]")
        elif isinstance(node, Recursion | Block):
            lines.append(f'  {name}{{{{"recursively {node.name}"}}}}')
        elif isinstance(node, Variable):
            lines.append(f'  {name}(["{node.label}"])')
        else:
            lines.append(f'  {name}["{node.name}"]')
    for node, nexts in successors(plan).items():
        for other in nexts:
            arrow = "-. back .->" if isinstance(other, Variable) else "-->"
            lines.append(f"  {ids[node]} {arrow} {ids[other]}")
    return "\n".join(lines) + "\n"
