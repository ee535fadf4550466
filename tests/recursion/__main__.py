"""The long form: `python -m tests.recursion [SEED] [--seconds N] [--program NAME]`.

Plays stories of every program and of random ones, seed after seed, and lives of workers, until the time is out.
What fails is printed with its seed, and the exit status is 1.
"""

import argparse
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count

from tests.recursion import blocks, nested_blocks
from tests.recursion.cluster import Cluster
from tests.recursion.programs import PROGRAMS
from tests.recursion.random_programs import random_block, random_nest, random_program
from tests.recursion.rig import Played, play

assert blocks
assert nested_blocks
Run = tuple[str, Callable[[], object]]


def runs(seed: int, played: Played, named: str | None) -> Iterator[Run]:
    """What is done for one seed."""
    for name, program in PROGRAMS.items():
        if named in (None, name):
            yield f"{name}, seed {seed}", lambda program=program: play(program, seed, played)  # type: ignore[misc]
            if seed % 10 == 0:
                for members in (1, 2):
                    rng = random.Random(f"{name} {members} {seed}")
                    yield (
                        f"{name}, {members} workers, seed {seed}",
                        lambda program=program, members=members, rng=rng: (  # type: ignore[misc]
                            Cluster(program, members, rng.choice([1, 4]), rng).live(program)
                        ),
                    )
    if named is None:
        for n in range(10 * seed, 10 * seed + 10):
            yield f"random program {n}", lambda n=n: play(random_program(n), n, played)  # type: ignore[misc]
            yield f"random block {n}", lambda n=n: play(random_block(n), n, played)  # type: ignore[misc]
            yield f"random nest {n}", lambda n=n: play(random_nest(n), n, played)  # type: ignore[misc]
        for program in (random_program(seed), random_block(seed), random_nest(seed)):
            rng = random.Random(f"{program.name} 2")
            yield (
                f"{program.name}, 2 workers",
                lambda program=program, rng=rng: Cluster(program, 2, 4, rng).live(program),
            )  # type: ignore[misc]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.recursion", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--program")
    given = parser.parse_args()
    logging.getLogger("eddy").setLevel(logging.CRITICAL + 1)
    played, failed, done, began = Played(), 0, 0, time.monotonic()
    for seed in count(given.seed):
        for what, run in runs(seed, played, given.program):
            if time.monotonic() - began > given.seconds:
                print(f"{done} runs, {played.epochs} epochs, {failed} failed, seeds {given.seed} to {seed}")
                return bool(failed)
            done += 1
            try:
                run()
            except Exception as error:
                failed += 1
                print(f"{what}: {type(error).__name__}: {str(error)[:2000]}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
