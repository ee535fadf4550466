"""An app that counts all descendants, in the mode that the environment names. Names of topics come from there, too."""

import os

import faust

import eddy

NAME, MODE = os.environ.get("NAME", "unnamed"), os.environ.get("MODE", "agents")
app = faust.App(
    f"{NAME}-app",
    broker=os.environ.get("BROKER", "kafka://localhost:9092"),
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
    broker_session_timeout=6,
    broker_heartbeat_interval=1,
    datadir=os.environ.get("DATA", "data"),
)
topology = eddy.Topology(f"{NAME}-family")
parents = topology.table(f"{NAME}-nodes", key=eddy.String, value=eddy.String, name="nodes")
(
    parents.to_relation()
    .map(lambda node, parent: (parent, 1))
    .recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors")
    .group_by_key()
    .count("descendants")
    .to(f"{NAME}-descendants", value=eddy.Int64)
)
eddy.faust.host(
    app,
    topology,
    MODE,
    config=eddy.Config(max_epoch_records=int(os.environ.get("EPOCH", "50000"))),
)
