"""Runs tests over and over, alone and four at once: `make test-stress TIMES=20 TESTS=tests/cli/test_kafka.py`.

A test that can fail on a right program fails here sooner than in a run of all. Prints the end of each run that fails.
"""

import argparse
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

_AT_ONCE = 4


def failure(tests: list[str]) -> str:
    """Run the tests in a process of their own. Returns the output where they fail."""
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode else ""


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.stress", description=__doc__)
    parser.add_argument("times", type=int)
    parser.add_argument("tests", nargs="+")
    given = parser.parse_args()
    failed = 0
    for at_once in (1, _AT_ONCE):
        with ThreadPoolExecutor(at_once) as pool:
            told = [each for each in pool.map(failure, itertools.repeat(given.tests, given.times)) if each]
        for each in told:
            print(each)
        print(f"{at_once} at once: {len(told)} of {given.times} runs failed", flush=True)
        failed += len(told)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
