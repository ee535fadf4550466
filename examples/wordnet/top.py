"""The ten concepts with the most descendants, from what comes out of the topology:

eddy consume sizes --latest --value-type json --format jsonl | python examples/wordnet/top.py
"""

import sys

import msgspec
from story import show_top
from topology import Size


class Line(msgspec.Struct):
    """A line of `eddy consume --format jsonl`."""

    key: str
    value: Size


def main() -> None:
    """Read them all, and show ten."""
    decode = msgspec.json.Decoder(Line).decode
    show_top([decode(line).value for line in sys.stdin.buffer])


if __name__ == "__main__":
    main()
