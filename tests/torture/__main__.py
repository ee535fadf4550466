"""The torture in full: `python -m tests.torture [SEED] [--kills N] [--fault NAME] [--planted NAME]`.

Plays every fault on one program after the other, each scenario from a seed of its own, until so many
workers were killed; prints a line a scenario and a table at the end. A scenario that fails is replayed by its
seed, fault and program. Exit status 1 where one has failed.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from eddy.broker import Broker
from tests.torture.faults import FAULTS
from tests.torture.planted import PLANTS
from tests.torture.programs import NAMES
from tests.torture.scenario import Outcome, torture

KILLS = 200
SETTINGS = {"broker.session.timeout.ms": "1000", "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


def main(arguments: list[str]) -> int:
    """Torture until there were enough kills. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.split("\n")[0])
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--kills", type=int, default=KILLS, help="how many workers to kill at least")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="these faults alone")
    parser.add_argument("--program", choices=NAMES, action="append", help="these programs alone")
    parser.add_argument("--planted", choices=PLANTS, help="plant this bug into the workers: it has to be found")
    given = parser.parse_args(arguments)
    faults, programs = given.fault or list(FAULTS), given.program or list(NAMES)
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="eddy-torture-") as folder,
        Broker(Path(folder) / "broker", heap_mib=256, settings=SETTINGS) as broker,
    ):
        seed = given.seed
        while sum(outcome.kills for outcome in outcomes) < given.kills or len(outcomes) < len(faults):
            fault = faults[seed % len(faults)]
            program = programs[(seed // len(faults) + seed) % len(programs)]
            outcomes.append(
                torture(broker.bootstrap, Path(folder), fault, program, seed, None, broker, given.planted or "")
            )
            print(line(outcomes[-1]), flush=True)
            if given.planted and outcomes[-1].failure:
                return 0
            seed += 1
    print(table(outcomes))
    if given.planted:
        print(f"{given.planted} was not found")
        return 1
    return any(outcome.failure for outcome in outcomes)


def line(outcome: Outcome) -> str:
    """One scenario in a line; what went wrong follows."""
    done = ", ".join(f"{name} ×{times}" for name, times in sorted(outcome.faults.items()))
    verdict = "FAILED" if outcome.failure else "ok"
    text = (
        f"seed {outcome.seed} · {outcome.fault} · {outcome.program} · {verdict}: {done}; {outcome.records:,} records, "
        f"{outcome.declared} times quiescent, {outcome.cuts} cuts, {outcome.took_s:.0f} s"
    )
    return f"{text}\n{outcome.failure}" if outcome.failure else text


def table(outcomes: list[Outcome]) -> str:
    """Faults and what came of them, in all."""
    rows = ["", f"{'fault':34}{'times':>7}{'lost':>7}{'doubled':>9}{'early':>7}{'hangs':>7}{'failed':>8}"]
    for fault in dict.fromkeys(outcome.fault for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.fault == fault]
        done = sum((outcome.faults for outcome in own), Counter())
        for name, times in sorted(done.items()):
            rows.append(f"{f'{fault}: {name}':34}{times:>7}")
        lost, doubled = (sum(getattr(o.difference, what) for o in own) for what in ("lost", "doubled"))
        early, hangs = sum(int(outcome.early) for outcome in own), sum(int(outcome.hangs) for outcome in own)
        failed = sum(bool(outcome.failure) for outcome in own)
        rows.append(
            f"{fault + ', in all':34}{sum(done.values()):>7}{lost:>7}{doubled:>9}{early:>7}{hangs:>7}{failed:>8}"
        )
    kills = sum(outcome.kills for outcome in outcomes)
    failed = sum(bool(outcome.failure) for outcome in outcomes)
    rows.append(f"{len(outcomes)} scenarios, {kills} workers killed, {failed} failed")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
