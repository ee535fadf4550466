"""Descendants in Faust alone, by a loop topic made by hand, as KIP-857's example does it; until SIGTERM.

BOOTSTRAP APPLICATION NODES LOOP COUNTS STATE_DIR

It needs parents before children, and is at least once. Says that it is ready once it has its partitions.
"""

import asyncio
import json
import struct
import sys
from time import perf_counter
from typing import Any

import faust

from benchmarks.cluster import PARTITIONS
from benchmarks.systems.faust_process import answers, app_named, run

_LOOK_S = 0.05


def main(bootstrap: str, application: str, nodes: str, loop: str, counts: str, state_dir: str) -> None:
    begun = perf_counter()
    said, app = answers(), app_named(application, bootstrap, state_dir, topic_partitions=PARTITIONS)
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    node_topic, loop_topic, count_topic = (app.topic(name, **raw) for name in (nodes, loop, counts))
    parents, totals = (
        app.Table(name, partitions=PARTITIONS, schema=faust.Schema(**raw)) for name in ("parents", "totals")
    )

    @app.agent(node_topic)
    async def on_node(stream: Any) -> None:
        async for node, parent in stream.items():
            parents[node] = parent
            await loop_topic.send(key=parent, value=b"1")

    @app.agent(loop_topic)
    async def on_update(stream: Any) -> None:
        async for node, _ in stream.items():
            total = int(totals.get(node) or 0) + 1
            totals[node] = b"%d" % total
            await count_topic.send(key=node, value=struct.pack(">q", total))
            if (parent := parents.get(node)) is not None:
                await loop_topic.send(key=parent, value=b"1")

    @app.task
    async def say_when_ready() -> None:
        while app.rebalancing or not {nodes, loop} <= {tp.topic for tp in app.consumer.assignment()}:
            await asyncio.sleep(_LOOK_S)
        print(
            json.dumps({"ready": perf_counter() - begun, "partitions": PARTITIONS, "restored": 0}),
            file=said,
            flush=True,
        )

    run(app)


if __name__ == "__main__":
    main(*sys.argv[1:])
