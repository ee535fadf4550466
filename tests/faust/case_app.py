"""An app that hosts a conformance case: CASE by name, in MODE, with PREFIX before the names of topics."""

import os
import sys
from pathlib import Path

import faust

sys.path.append(str(Path(__file__).resolve().parents[2]))

import eddy
from tests.conformance.cases import CASES
from tests.conformance.engines import prefixed

CASE, PREFIX = os.environ.get("CASE", CASES[0].name), os.environ.get("PREFIX", "unnamed-")
app = faust.App(
    f"{PREFIX}app",
    broker=os.environ.get("BROKER", "kafka://localhost:9092"),
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
)
topology = prefixed(next(case for case in CASES if case.name == CASE), PREFIX)
eddy.faust.host(app, topology, os.environ.get("MODE", "agents"), config=eddy.Config())
