"""A full disk, for this process."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["files_no_longer_than"]


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """A full disk that needs no rights: a write past `size` of a file fails, here with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
