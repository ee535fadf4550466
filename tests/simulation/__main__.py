"""Replay seeds: `python -m tests.simulation SEED [COUNT]` prints the trace of SEED, or runs COUNT seeds from it."""

import sys
import time
import traceback

from tests.simulation.world import World


def replay(seed: int) -> None:
    """Run one seed and print what happened, turn by turn."""
    world = World(seed)
    try:
        world.run()
    finally:
        print("\n".join(world.trace), f"\nseed {seed}: {world.digest()}", flush=True)


def sweep(first: int, count: int) -> int:
    """Run `count` seeds; print those that fail. Returns how many."""
    started, failed = time.monotonic(), 0
    for seed in range(first, first + count):
        try:
            World(seed).run()
        except BaseException as error:
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"seed {seed}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})", flush=True)
            if isinstance(error, KeyboardInterrupt):
                raise
    print(f"{count} seeds, {failed} failed, {count / (time.monotonic() - started):.0f} seeds/s")
    return failed


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    if len(arguments) == 2:
        sys.exit(bool(sweep(*arguments)))
    replay(*arguments)
