"""The DSL: topologies, streams, tables, relations and recursions, whose methods add nodes to a plan."""
