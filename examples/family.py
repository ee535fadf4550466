"""How many descendants has everybody? Counted over all generations, and kept right."""

import eddy

topology = eddy.Topology("family")

parents = topology.table("nodes", key=eddy.String, value=eddy.String)  # node -> parent; the last record wins
descendants = (
    parents.to_relation()  # rows (node, parent) that come and go
    .map(lambda node, parent: (parent, 1))
    .recursively(lambda updates: updates.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors")
    .group_by_key()
    .count("descendants")  # a KTable: node -> number of descendants, always right
)
descendants.to("descendants", value=eddy.Int64)

if __name__ == "__main__":
    with eddy.TopologyTestDriver(topology) as driver:
        nodes = driver.input("nodes")
        nodes.pipe_all([("leaf", "twig"), ("twig", "branch"), ("branch", "tree")])
        print("grown  ", driver.store("descendants").all())
        nodes.pipe("twig", "tree")
        print("moved  ", driver.store("descendants").all())
        nodes.pipe("leaf", None)
        print("fallen ", driver.store("descendants").all())
