"""The full form: `python -m tests.torture [SEED] [--kills N] [--scenarios N] [--keep DIR]`.

Scenarios run from SEED on, one seed each, until so many workers were killed and every fault has met every
program; with `--scenarios` that many. A seed says which fault and program it is, and draws all the rest:
`python -m tests.torture SEED --scenarios 1` replays it, as far as processes can be replayed.
"""

import argparse
import fcntl
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from eddy.connectors.broker import Broker
from tests.kafka import QUICK_BROKER, start_keeper
from tests.torture.faults import FAULTS
from tests.torture.programs import NAMES
from tests.torture.scenario import Outcome, torture

PAIRS = [(fault, program) for program in NAMES for fault in FAULTS]
COLUMNS = ("fault", "runs", "times", "kills", "lost", "doubled", "wrong", "early", "hangs", "failed")


def run(seed: int, broker: Broker, folder: Path) -> Outcome:
    """Run one seed, and say how it went."""
    fault, program = PAIRS[seed % len(PAIRS)]
    print(f"seed {seed}: {fault}, {program} … ", end="", flush=True)
    outcome = torture(broker.bootstrap, folder, fault, program, seed, broker=broker)
    print(f"{'FAILED' if outcome.failure else 'ok'}, {outcome.kills} kills, {outcome.took_s:.0f} s", flush=True)
    if outcome.failure:
        print(f"{outcome.failure}\nreplay: python -m tests.torture {seed} --scenarios 1; logs are in {folder}")
    return outcome


def table(outcomes: Iterable[Outcome]) -> str:
    """One row a fault, and their sum."""
    rows: dict[str, Counter[str]] = {}
    for found in outcomes:
        for name in (found.fault, "all"):
            rows.setdefault(name, Counter()).update(
                runs=1,
                times=sum(found.faults.values()),
                kills=found.kills,
                lost=found.difference.lost,
                doubled=found.difference.doubled,
                wrong=found.difference.wrong,
                early=found.early,
                hangs=found.hangs,
                failed=bool(found.failure),
            )
    rows["all"] = rows.pop("all", Counter())
    lines = [COLUMNS, *((name, *(str(row[column]) for column in COLUMNS[1:])) for name, row in rows.items())]
    return "\n".join(line[0].ljust(16) + "".join(cell.rjust(9) for cell in line[1:]) for line in lines)


def summary(outcomes: list[Outcome]) -> str:
    """The table, what exactly was done how often, and how much was checked."""
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
    done = "; ".join(f"{name} {times}" for name, times in sorted(faults.items()))
    asked, declared, checked, cuts, records = (
        sum(getattr(outcome, name) for outcome in outcomes)
        for name in ("asked", "declared", "checked", "cuts", "records")
    )
    return (
        f"\n{table(outcomes)}\n\n{done}\n\nquiescent was asked for {asked} times and said {declared} times, "
        f"{checked} of them checked; {cuts} cuts checked; {records} records of input; seeds {outcomes[0].seed} to "
        f"{outcomes[-1].seed}"
    )


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, default=random.randrange(1_000) * len(PAIRS))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--scenarios", type=int)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "eddy-torture")
    given = parser.parse_args()
    logging.getLogger("eddy").setLevel(logging.CRITICAL + 1)
    outcomes: list[Outcome] = []
    given.keep.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="eddy-torture-", delete=False) as session:
        fcntl.flock(session, fcntl.LOCK_EX)
        brokers = Path(tempfile.mkdtemp(prefix="eddy-brokers-"))
        start_keeper(Path(session.name), brokers)
        settings = {"broker.session.timeout.ms": "1000"}
        broker = Broker(brokers / "own", heap_mib=384, java_options=QUICK_BROKER.options(), settings=settings)
        broker.start()
        try:
            for seed in count(given.seed):
                outcomes.append(run(seed, broker, given.keep))
                kills = sum(outcome.kills for outcome in outcomes)
                if len(outcomes) == given.scenarios:
                    break
                if given.scenarios is None and kills >= given.kills and len(outcomes) >= len(PAIRS):
                    break
        finally:
            if outcomes:
                print(summary(outcomes), flush=True)
            broker.kill()
    return any(outcome.failure for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
