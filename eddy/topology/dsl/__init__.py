"""What authors write: topologies, streams, tables, relations and recursions, which add nodes to a plan."""
