"""Descendants in Quix Streams, by a loop topic made by hand; until SIGTERM. Runs without eddy: see `quix_peer.py`.

BOOTSTRAP GROUP NODES LOOP COUNTS STATE_DIR

Both topics share one store, as `concat` joins them: a node's record sets its parent, a loop's record counts, and each
goes on to the parent. It needs parents before children, and is at least once. It polls every 0.02 s: its default of a
second is paid at every hop of the loop.
"""

import contextlib
import json
import os
import struct
import sys
import threading
import time
from typing import Any

from confluent_kafka.admin import AdminClient
from quixstreams import Application

PARTITIONS = 4
_POLL_S, _LOOK_S = 0.02, 0.1


def main(bootstrap: str, group: str, nodes: str, loop: str, counts: str, state_dir: str) -> None:
    begun = time.perf_counter()
    said = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    app = Application(
        bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=state_dir,
        loglevel="ERROR",
        consumer_poll_timeout=_POLL_S,
        consumer_extra_config={"isolation.level": "read_committed"},
    )
    text = dict.fromkeys(("key_deserializer", "value_deserializer", "key_serializer", "value_serializer"), "str")
    node_topic, loop_topic = app.topic(nodes, **text), app.topic(loop, **text)
    count_topic = app.topic(counts, key_serializer="str", value_serializer="bytes")

    def step(record: tuple[str, str], key: str, timestamp: int, headers: Any, state: Any) -> dict[str, Any]:
        kind, parent = record
        if kind == "node":
            state.set("parent", parent)
            return {"up": parent}
        total = state.get("total", 0) + 1
        state.set("total", total)
        return {"total": struct.pack(">q", total), "up": state.get("parent")}

    rows = app.dataframe(node_topic).apply(lambda parent: ("node", parent))
    both = rows.concat(app.dataframe(loop_topic).apply(lambda _: ("loop", None)))
    stepped = both.apply(step, stateful=True, metadata=True)
    stepped.filter(lambda row: "total" in row).apply(lambda row: row["total"]).to_topic(count_topic)
    stepped.filter(lambda row: row["up"] is not None).apply(lambda row: row["up"]).to_topic(
        loop_topic, key=lambda parent: parent
    )

    def say_when_ready() -> None:
        admin, owned = AdminClient({"bootstrap.servers": bootstrap}), 0
        while owned < PARTITIONS:
            time.sleep(_LOOK_S)
            with contextlib.suppress(Exception):  # there is no such group yet
                group_now = admin.describe_consumer_groups([group])[group].result()
                given = [tp for member in group_now.members for tp in member.assignment.topic_partitions]
                owned = sum(tp.topic == nodes for tp in given)
        ready = {"ready": time.perf_counter() - begun, "partitions": owned, "restored": 0}
        print(json.dumps(ready), file=said, flush=True)

    threading.Thread(target=say_when_ready, daemon=True).start()
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
