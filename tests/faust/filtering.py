"""An app that keeps one record in a thousand of a backlog. Names of topics come from the environment."""

import os

import eddy
from tests.faust.on_broker import app_on_broker

NAME = os.environ.get("NAME", "unnamed")
app = app_on_broker(f"{NAME}-app")
topology = eddy.Topology(NAME)
kept = topology.stream(f"{NAME}-in", eddy.Int64, eddy.Bytes).filter(lambda number, _: number % 1_000 == 0)
kept.map_values(len, value=eddy.Int64).to(f"{NAME}-out")
eddy.faust.host(app, topology, "agents")
