"""An app that counts all descendants, in the mode that the environment names. Names of topics come from there, too.

An agent counts votes in a table of Faust's, and the topology multiplies them with the descendants.
"""

import os

from faust.types import StreamT

import eddy
from tests.faust.family import counting
from tests.faust.on_broker import app_on_broker

NAME, MODE = os.environ.get("NAME", "unnamed"), os.environ.get("MODE", "agents")
app = app_on_broker(
    f"{NAME}-app",
    broker_session_timeout=6,
    broker_heartbeat_interval=1,
    datadir=os.environ.get("DATA", "data"),
)
votes = app.Table("votes", default=int, key_type=str, value_type=int, partitions=4)
eddy.faust.host(
    app,
    counting(NAME, votes),
    MODE,
    config=eddy.Config(max_epoch_records=int(os.environ.get("EPOCH", "50000"))),
)


@app.agent(app.topic(f"{NAME}-votes", key_type=str, key_serializer="raw", value_type=bytes, value_serializer="raw"))
async def vote(stream: StreamT[bytes]) -> None:
    async for node, _ in stream.items():
        votes[node] += 1
