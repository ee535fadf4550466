"""The names of the states of each step, found in the properties of nodes, without compiling the plan.

Steps are visited in the order in which a circuit is compiled. The order matters, because the first join that reads a
collection makes the state, which later joins share. The same holds for the first processor that names a state store.
"""

from collections.abc import Mapping

from eddy.topology.plan.placement import Placement, place
from eddy.topology.plan.plan import Loop, Node, Plan
from eddy.topology.plan.scopes import Scopes

__all__ = ["kept_bindings", "stores_of"]


def stores_of(plan: Plan) -> dict[str, list[str]]:
    """Return the names of each step's states, by the step's name, as if each source had one partition."""
    return _Stores(plan, place(plan, {source.topic: 1 for source in plan.sources()})).found


def kept_bindings(scopes: Scopes, loop: Loop) -> list[int]:
    """Return the numbers of the bindings of an outermost loop by nested time that need a state of their own.

    A binding needs a state if no trace inside the loop has its rows.
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
        """Return the suffixes of the loop's own states."""
        if not loop.waves:
            errors = ["errors", "held"] if loop.error_limit is not None or self._scopes.limits(loop) else []
            return [*errors, "queued", *(["given"] if kept_bindings(self._scopes, loop) else [])]
        (variable,) = loop.variables
        is_read = (variable, loop.name) in self._read
        return [*([""] if loop.derived or is_read else []), *loop.derived]

    def _looked_up(self, node: Node, outside_only: bool = False) -> list[str]:
        """Return the names of the states that a join adds to read its inputs."""
        made = []
        for side, name in node.looks_up:
            state = side.looked_up_as or name
            if (outside_only and side in self._scopes.around) or not self._is_new(side, state):
                continue
            if not side.looked_up_as:
                made.append(state)
        return made

    def _is_new(self, side: Node, state: str) -> bool:
        """Return whether no state has had the rows of an input until now, and note that one has them from now on."""
        if side.kind == "table":
            is_new = side not in self._tables
            self._tables.add(side)
        else:
            is_new = (side, state) not in self._read
            self._read.add((side, state))
        return is_new

    def _note_table(self, node: Node) -> None:
        """Note that joins read the table of a step, also through an exchange that sends none of its rows."""
        stays = node.role == "exchange" and node.single_partition and self._placements[node.inputs[0]].partitions == 1
        if node.has_table or (stays and node.inputs[0] in self._tables):
            self._tables.add(node)
