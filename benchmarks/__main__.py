"""The way in: `python -m benchmarks` runs all, `python -m benchmarks live descendants` some.

Exit status 0 where every result was right, 1 where one was wrong. A target that is missed is
printed as missed and changes nothing: time on a shared machine is not a test.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks.report import Section, machine, print_section, print_targets
from benchmarks.runs import busy_cores

_NAMES = (
    *("descendants", "live", "fixpoint", "sql", "permissions", "end-to-end", "restart", "larger-than-cache"),
    *(
        "poison",
        "processors",
        "schema-registry",
        "windows",
        "passing-windows",
        "queries",
        "serve",
        "client",
        "kafka",
        "kafka-windows",
        "kafka-latency",
        "kafka-deep",
        "kafka-restore",
        "kafka-restart",
        "global-table",
        "faust",
        "spark",
    ),
)
_WHEN_ASKED = ("spark-kafka", "spark-crossing")
"""They start clusters, or take an hour."""


def main() -> int:
    """Run what was asked for, print as it comes."""
    arguments = _arguments()
    print(machine())
    if arguments.quick:
        print("quick: small workloads; the targets are meant for the full ones")
    sections: dict[str, Section] = {}
    for name in arguments.names or _NAMES:
        others = busy_cores()
        section = sections[name] = importlib.import_module(f"benchmarks.{name.replace('-', '_')}").run(arguments.quick)
        busy = others() if section.others_cores is None else section.others_cores
        section.notes.append(f"meanwhile others kept {busy:.2f} cores busy.")
        print_section(section)
        sys.stdout.flush()
    print_targets([target for section in sections.values() for target in section.targets])
    if arguments.json:
        found = {name: section.as_json() for name, section in sections.items()}
        arguments.json.write_text(
            json.dumps({"machine": machine(), "quick": arguments.quick, **found}, indent=1) + "\n"
        )
    return 1 if any(section.wrong for section in sections.values()) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure eddy beside its peers.")
    names = (*_NAMES, *_WHEN_ASKED)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one or more of {', '.join(names)}; default: all but the last {len(_WHEN_ASKED)}",
    )
    parser.add_argument("--quick", action="store_true", help="small workloads, to see that everything runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single run there as well")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in names]:
        parser.error(f"{unknown[0]!r} is not a benchmark; one of {', '.join(names)} is needed")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
