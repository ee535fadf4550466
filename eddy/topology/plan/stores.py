"""The names of the states of each step, from the declarations of nodes, without compiling the plan.

Steps are visited in the order in which a circuit is compiled, since the first join that reads a collection makes the
state that others read, too. So does the first processor that names a state store.
"""

from collections.abc import Mapping

from eddy.topology.plan.placement import Placement, place
from eddy.topology.plan.plan import Loop, Node, Plan
from eddy.topology.plan.scopes import Scopes

__all__ = ["kept_bindings", "stores_of"]


def stores_of(plan: Plan) -> dict[str, list[str]]:
    """The names of the states of each step, by its name; sources are assumed to have one partition."""
    return _Stores(plan, place(plan, {source.topic: 1 for source in plan.sources()})).found


def kept_bindings(scopes: Scopes, loop: Loop) -> list[int]:
    """The bindings of an outermost loop by nested time that need a state of their own, since no trace inside has their
    rows.
    """
    traced = {node for step in scopes.body[loop] for node, _ in step.traces(scopes.around)}
    return [index for index, steps in enumerate(loop.traced_as()) if traced.isdisjoint(steps)]


class _Stores:
    def __init__(self, plan: Plan, placements: Mapping[Node, Placement]) -> None:
        self._scopes, self._placements = Scopes(plan), placements
        self._tables: set[Node] = set()
        self._read: set[tuple[Node, str]] = set()
        self._shared: set[str] = set()
        self.found: dict[str, list[str]] = {}
        for node in plan.nodes:
            if node not in self._scopes.around:
                self._visit(node, nested=False)

    def _visit(self, node: Node, nested: bool) -> None:
        states = self.found.setdefault(node.name, [])
        if node.as_loop is not None:
            self._visit_loop(node.as_loop, states, nested)
        elif nested:
            states += self._looked_up(node, outside_only=True)
            states += [*(name for _, name in node.traces(self._scopes.around)), *node.errors_kept]
        else:
            states += self._looked_up(node)
            states += [kept.name_of(node.name) for kept in node.keeps]
            states += [name for name in node.store_names if name not in self._shared]
            self._shared.update(node.store_names)
        self._note_table(node)

    def _visit_loop(self, loop: Loop, states: list[str], nested: bool) -> None:
        body = self._scopes.body[loop]
        if loop.waves and not nested:
            for step in body:
                self.found.setdefault(step.name, []).extend(self._looked_up(step, outside_only=True))
        for step in body:
            self._visit(step, nested or not loop.waves)
        if not nested:
            states += [f"{loop.name}-{suffix}" if suffix else loop.name for suffix in self._own(loop)]

    def _own(self, loop: Loop) -> list[str]:
        """The suffixes of the states of a loop itself."""
        if not loop.waves:
            errors = ["errors", "held"] if loop.error_limit is not None or self._scopes.limits(loop) else []
            return [*errors, "queued", *(["given"] if kept_bindings(self._scopes, loop) else [])]
        (variable,) = loop.variables
        is_read = (variable, loop.name) in self._read
        return [*([""] if loop.derived or is_read else []), *loop.derived]

    def _looked_up(self, node: Node, outside_only: bool = False) -> list[str]:
        """The states that a join makes to read its inputs."""
        made = []
        for side, name in node.looks_up:
            state = side.looked_up_as or name
            if (outside_only and side in self._scopes.around) or not self._is_new(side, state):
                continue
            if not side.looked_up_as:
                made.append(state)
        return made

    def _is_new(self, side: Node, state: str) -> bool:
        """Whether no state has the rows of an input yet. From now on one does."""
        if side.kind == "table":
            is_new = side not in self._tables
            self._tables.add(side)
        else:
            is_new = (side, state) not in self._read
            self._read.add((side, state))
        return is_new

    def _note_table(self, node: Node) -> None:
        """A step's own table is read by all joins, also after an exchange whose rows remain at their only owner."""
        stays = node.role == "exchange" and node.single_partition and self._placements[node.inputs[0]].partitions == 1
        if node.has_table or (stays and node.inputs[0] in self._tables):
            self._tables.add(node)
