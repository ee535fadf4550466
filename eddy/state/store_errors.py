"""The errors of a store on disk that cannot be used, each with the path, the cause and the fix."""

from pathlib import Path

from eddy.errors import StateError
from eddy.state.offsets import RESERVED

__all__ = ["closed", "foreign_files", "foreign_owner", "older", "refused", "reserved", "unreadable"]


def closed(path: Path) -> StateError:
    """The error for the use of a store or scan that is not open."""
    return StateError(
        f"state {str(path)!r}: was closed, or opened anew after a refused write; "
        "an open store and a scan made from it are needed. Open the store, or scan again."
    )


def older(path: Path) -> StateError:
    """Return the error for a store that was opened again and lacks writes that it had accepted."""
    return StateError(
        f"state {str(path)!r}: the store was opened again after a refused write, and earlier writes are missing; "
        "its offsets have to be read again. Restart the worker: it restores the rows from the changelogs."
    )


def reserved(path: Path, key: bytes) -> StateError:
    """The error for a write of a key that belongs to the store itself."""
    return StateError(
        f"state {str(path)!r}: key {key!r} is reserved; keys below {RESERVED!r} are the user's. "
        "Put the name of a table before the key."
    )


def foreign_files(path: Path, names: list[str]) -> StateError:
    """The error for a directory with files that eddy did not make."""
    return StateError(
        f"state {str(path)!r}: holds files that eddy did not make ({names[0]!r}, {len(names)} in all); "
        "a new or an empty directory is needed. Choose another one: nothing in this one was changed."
    )


def foreign_owner(path: Path, found: bytes | None, owner: bytes) -> StateError:
    """The error for a directory that belongs to another application."""
    there = (found or b"").decode(errors="replace")
    return StateError(
        f"state {str(path)!r}: belongs to application {there!r}, not to {owner.decode()!r}; a directory "
        "holds the state of one. Choose another directory: nothing in this one was changed."
    )


def refused(path: Path, action: str, error: Exception) -> StateError:
    """The error for a write, or a flush, that had no effect."""
    return StateError(
        f"state {str(path)!r}: a {action} was refused ({_line(error)}) and had no effect; room and "
        "permission to write are needed. Free space and try again: the store opens itself anew."
    )


def unreadable(path: Path, error: Exception) -> StateError:
    """The error for a store that cannot be opened or read."""
    # Deleting is advised only for damage: other causes, such as permissions or too many open files, can be removed.
    if "Corruption" in str(error) or "No such file" in str(error):
        return StateError(
            f"state {str(path)!r}: is damaged ({_line(error)}); a whole store is needed, and nothing "
            "was changed. Delete the directory: it is restored from the changelogs."
        )
    return StateError(
        f"state {str(path)!r}: cannot be used ({_line(error)}); the directory must be readable and writable. "
        "Remove the cause and start again: it is not known to be damaged, and nothing was changed."
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
