"""Modules import each other in no circle but one, the collections of the DSL (ADR 30); type checkers' imports count."""

import grimp

COLLECTIONS = {
    *["async_maps", "cogrouped", "collected", "foreign_keys", "grouped", "processed"],
    *["reach", "relation", "stream", "stream_joins", "table"],
}


def test_the_collections_of_the_dsl_are_the_only_circle() -> None:
    graph = grimp.build_graph("eddy", cache_dir=None)
    circles = {
        module
        for module in graph.modules
        if not graph.find_upstream_modules(module).isdisjoint(graph.find_downstream_modules(module))
    }
    assert circles == {f"eddy.topology.dsl.{name}" for name in COLLECTIONS}
