"""Pictures of a plan: golden texts."""

import re
from xml.etree import ElementTree

import pytest

import eddy
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from eddy.topology.plan.picture import PictureStep, _box, _DrawnPlace, steps  # private: no step may have such a name
from eddy.topology.plan.stores import stores_of
from tests.conformance.cases import CASES
from tests.topology.programs import S, family

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_declared_states_are_those_of_the_circuit(case) -> None:
    plan = case.topology().plan
    circuit = compile_plan(plan, Environment({source.topic: 1 for source in plan.sources()}))
    assert sorted(state for states in stores_of(plan).values() for state in states) == sorted(circuit.states)


def test_describe_is_written_as_kafka_streams_writes_it() -> None:
    assert (
        family().describe()
        == """\
Topologies:
   Sub-topology: 0
    Source: nodes (topics: [nodes], store: nodes)
      --> RELATION-MAP-0000000001, ancestors-nodes-join
    Processor: RELATION-MAP-0000000001 (stores: [])
      --> ancestors
      <-- nodes
    Processor: ancestors-variable (stores: [])
      --> ancestors-nodes-join
      <-- ancestors
    Processor: ancestors-nodes-join (stores: [])
      --> ancestors
      <-- nodes, ancestors-variable
    Processor: ancestors (stores: [ancestors, ancestors-held, ancestors-reached], topic: family-ancestors-loop)
      --> ancestors-variable, descendants
      <-- RELATION-MAP-0000000001, ancestors-nodes-join
      strategy: waves, since op is linear
    Processor: descendants (stores: [descendants])
      --> KTABLE-SINK-0000000006
      <-- ancestors
    Sink: KTABLE-SINK-0000000006 (topic: descendants)
      <-- descendants
"""
    )


def test_mermaid_shows_topics_as_cylinders_and_loops_as_dotted_arrows() -> None:
    assert (
        family().mermaid()
        == """\
flowchart TD
  n0[(nodes)]
  n1["RELATION-MAP-0000000001"]
  n2(["ancestors"])
  n3["ancestors-nodes-join"]
  n4{{"recursively ancestors"}}
  n5["descendants"]
  n6[(descendants)]
  n0 --> n1
  n0 --> n3
  n1 --> n4
  n2 --> n3
  n3 --> n4
  n4 -. back .-> n2
  n4 --> n5
  n5 --> n6
"""
    )


def test_topologies_that_do_not_meet_are_told_apart() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).group_by(lambda key, value: value, key=S).count("counts")
    topology.table("other", key=S, value=S).to("copy")
    assert (
        topology.describe()
        == """\
Topologies:
   Sub-topology: 0
    Source: in (topics: [in])
      --> KSTREAM-SELECT-KEY-0000000001
    Processor: KSTREAM-SELECT-KEY-0000000001 (stores: [])
      --> counts-repartition
      <-- in
    Processor: counts-repartition (stores: [], topic: app-counts-repartition)
      --> counts
      <-- KSTREAM-SELECT-KEY-0000000001
    Processor: counts (stores: [counts])
      --> none
      <-- counts-repartition
   Sub-topology: 1
    Source: other (topics: [other], store: other)
      --> KTABLE-SINK-0000000005
    Sink: KTABLE-SINK-0000000005 (topic: copy)
      <-- other
"""
    )


def test_describe_says_how_a_recursion_is_computed_and_why() -> None:
    assert "strategy: waves by depth up to 3, since the answer depends on the depth" in family(max_depth=3).describe()
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).recursively(lambda rows: rows.filter(lambda k, v: False))
    assert "strategy: waves of facts, since a KStream's records are never retracted" in topology.describe()


def test_a_notebook_shows_the_picture() -> None:
    assert family()._repr_svg_() == family().picture()


def test_picture_has_every_step_below_its_inputs_and_the_way_round() -> None:
    topology = family()
    picture = ElementTree.fromstring(topology.picture())
    found = steps(topology.plan)
    boxes = {
        int(group.attrib["data-step"]): float(rect.attrib["y"])
        for group in picture.iter(f"{SVG}g")
        for rect in group.iter(f"{SVG}rect")
    }
    assert len(boxes) == len(found) == len(topology.plan.nodes)
    assert all(boxes[number] < boxes[other] for number, step in enumerate(found) for other in step.to)
    backs = [(found[number].name, found[other].title) for number in boxes for other in found[number].back]
    assert backs == [("ancestors", "ancestors")]
    assert len([path for path in picture.iter(f"{SVG}path") if path.get("class") == "back"]) == 1


def test_names_in_a_picture_are_no_markup() -> None:
    assert "&lt;b&gt; &amp;" in _box(
        0, PictureStep("<b> &", "<b> &", "step", None, [], None, None, [], []), _DrawnPlace(9.0, 0)
    )


def test_describe_names_every_store_that_there_is() -> None:
    topology = eddy.Topology("stores")
    left, right = (topology.table(name, key=eddy.String, value=eddy.Int64) for name in ("left", "right"))
    rows = left.to_relation().map(lambda key, value: (key, value))
    joined = rows.join(right.filter(lambda _, value: value > 0), lambda key, a, b: (key, a + b), name="joined")
    looped = joined.recursively(lambda x: x.filter(lambda _, n: n > 1).map(lambda k, n: (k, n - 1)), name="loop")
    looped.group_by_key().aggregate(int, lambda _, n, a: a + n, lambda _, n, a: a - n, "sum", eddy.Int64)
    with eddy.TopologyTestDriver(topology) as driver:
        states = set(driver.worker.circuit.states)
    lists = re.findall(r"(?:stores: \[|store: )([^\])]*)", topology.describe())
    assert {name for names in lists for name in names.split(", ") if name} == states
