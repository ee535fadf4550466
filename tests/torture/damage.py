"""What happens to a state directory between two runs: it is lost, damaged, or an older one is put in its place.

A worker either takes it in and is right, or names it and ends: then the directory is removed, as it says.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["DAMAGES", "keep_copy"]

Damage = Callable[[Path, random.Random], None]


def keep_copy(folder: Path) -> None:
    """Keep the directory as it is now, to be put back later."""
    shutil.rmtree(_kept(folder), ignore_errors=True)
    shutil.copytree(folder, _kept(folder))


def _kept(folder: Path) -> Path:
    return folder.parents[1] / f"{folder.name} as it was"


def put_back(folder: Path, rng: random.Random) -> None:
    """The copy is there instead; nothing, where there was nothing to copy."""
    shutil.rmtree(folder, ignore_errors=True)
    if _kept(folder).exists():
        _kept(folder).rename(folder)


def delete(folder: Path, rng: random.Random) -> None:
    """All of it is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def truncate(folder: Path, rng: random.Random) -> None:
    """A file has lost its end."""
    for data, path in _a_file(folder, rng):
        path.write_bytes(data[: rng.randrange(len(data))])


def flip(folder: Path, rng: random.Random) -> None:
    """A bit of a file is another one."""
    for data, path in _a_file(folder, rng):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def _a_file(folder: Path, rng: random.Random) -> list[tuple[bytearray, Path]]:
    """One of those that hold rows; none where the worker was killed before it had written any."""
    found = sorted(folder.iterdir()) if folder.exists() else []
    files = [path for path in found if path.suffix in {".sst", ".log"} and path.stat().st_size]
    return [(bytearray(path.read_bytes()), path) for path in rng.sample(files, min(1, len(files)))]


DAMAGES: dict[str, Damage] = {"deleted": delete, "truncated": truncate, "flipped": flip, "an older copy": put_back}
