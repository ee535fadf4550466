"""An app that hosts conformance cases: HOSTED is `name=mode,…`; PREFIX and a number are before the names of topics."""

import os

from faust.types import StreamT

import eddy
from tests.conformance.cases import CASES
from tests.conformance.engines import prefixed
from tests.faust.on_broker import app_on_broker

PREFIX = os.environ.get("PREFIX", "unnamed-")
app = app_on_broker(f"{PREFIX}app")
NAMED = {case.name: case for case in CASES}
HOSTED = []
for number, chosen in enumerate(os.environ.get("HOSTED", f"{CASES[0].name}=agents").split(",")):
    name, mode = chosen.split("=")
    HOSTED.append(eddy.faust.host(app, prefixed(NAMED[name], f"{PREFIX}{number}-"), mode, config=eddy.Config()))


@app.agent(
    app.topic(
        min(sink.topic for sink in HOSTED[0].topology.plan.sinks()),
        value_type=bytes,
        value_serializer="raw",
        allow_empty=True,
    )
)
async def read(stream: StreamT[bytes]) -> None:
    """Faust does not start without an agent."""
    async for _ in stream:
        pass
