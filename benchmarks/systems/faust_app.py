"""The descendants program hosted in a Faust app, until SIGTERM.

BOOTSTRAP APPLICATION NODES LOOP COUNTS STATE_DIR MODE

Says when it owns partitions anew and has their states, as `benchmarks.applications` wants it.
"""

import asyncio
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import eddy
from benchmarks.systems.family import family
from benchmarks.systems.faust_process import answers, app_named, run

_LOOK_S = 0.05


def main(bootstrap: str, application: str, nodes: str, loop: str, counts: str, state_dir: str, mode: str) -> None:
    begun = perf_counter()
    said, app = answers(), app_named(f"{application}-app", bootstrap, state_dir)
    topology = family(application, nodes, counts)
    hosted = eddy.faust.host(app, topology, mode, config=eddy.Config(state_dir=Path(state_dir) / "eddy"))

    @app.agent(app.topic(loop))
    async def wait(stream: Any) -> None:
        """Nobody writes there; Faust does not start without a topic to read."""
        async for _ in stream:
            pass

    @app.task
    async def say_when_ready() -> None:
        before = 0
        while not app.should_stop:
            await asyncio.sleep(_LOOK_S)
            worker = hosted.watch.worker if hosted.watch else None
            owned = sum(map(len, worker.circuit.ownership.partitions.values())) if worker else 0
            if worker and owned != before and not worker.restoring:
                before = owned
                ready = {"ready": perf_counter() - begun, "partitions": owned, "restored": worker.statistics.restored}
                print(json.dumps(ready), file=said, flush=True)

    run(app)


if __name__ == "__main__":
    main(*sys.argv[1:])
