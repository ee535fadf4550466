"""Apps for tests. Names of topics come from the environment, since tests share a broker."""

import os
import threading
from collections import Counter

from faust.types import StreamT
from faust.web import Request, Response, View

import eddy
from tests.faust.on_broker import app_on_broker

NAME = os.environ.get("NAME", "unnamed")
app = app_on_broker(f"{NAME}-app", broker_commit_interval=float(os.environ.get("COMMIT_INTERVAL_S", "2.8")))
let_go = threading.Event()
seen: Counter[str] = Counter()


def upper(value: str) -> str:
    """A user's function: `wait` blocks its thread until the page /go is asked for, `poison` fails."""
    if value == "wait":
        let_go.wait()
    if value == "poison":
        raise ValueError("cannot be processed")
    return value.upper()


topology = eddy.Topology(NAME)
topology.stream(f"{NAME}-in", eddy.String, eddy.String).map_values(upper, value=eddy.String).to(f"{NAME}-out")
eddy.faust.host(app, topology, os.environ.get("MODE", "worker"))


@app.agent(app.topic(f"{NAME}-out", value_type=str, value_serializer="raw"))
async def watch(stream: StreamT[str]) -> None:
    async for value in stream:
        seen[value] += 1


@app.page("/go")
async def go(view: View, request: Request) -> Response:
    let_go.set()
    return view.json("gone")


@app.page("/close")
async def close(view: View, request: Request) -> Response:
    """As Faust does when its group rebalances while it stops."""
    app.consumer.close()
    return view.json("closed")


@app.page("/seen")
async def show(view: View, request: Request) -> Response:
    return view.json(seen)
