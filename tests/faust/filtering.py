"""An app that keeps one record in a thousand of a backlog. Names of topics come from the environment."""

import os

import faust

import eddy

NAME = os.environ.get("NAME", "unnamed")
app = faust.App(
    f"{NAME}-app",
    broker=os.environ.get("BROKER", "kafka://localhost:9092"),
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
)
topology = eddy.Topology(NAME)
kept = topology.stream(f"{NAME}-in", eddy.Int64, eddy.Bytes).filter(lambda number, _: number % 1_000 == 0)
kept.map_values(len, value=eddy.Int64).to(f"{NAME}-out")
eddy.faust.host(app, topology, "agents")
