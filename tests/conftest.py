"""Lets tests share what is under `tests/`, and says how hard the laws are tried: EDDY_EXAMPLES=1000 make test."""

import os
import sys
from pathlib import Path

from hypothesis import settings

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

settings.register_profile("eddy", deadline=None, max_examples=int(os.environ.get("EDDY_EXAMPLES", "40")))
settings.load_profile("eddy")
