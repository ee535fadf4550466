"""Live queries over sockets: many queries on few streams, and on many, each changing once a second.

    a change is written ─▶ log ─▶ table server ─▶ live query ─▶ server-sent event ─▶ its bytes are read by a client

The server is a process of its own (`systems/live_server.py`), the clients are coroutines of this one. Each row has the
time at which it was written, so that the first client byte tells how long a patch took, by the clock.
"""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Measured", "measure"]

_PATIENCE_S = 300.0
_OPENED_AT_ONCE = 100
_FIRST_S, _QUIET_S = 4, 5.0
"""A first round, unmeasured: until there is a first version without a cut, the server waits for one."""
_AT = re.compile(rb'"at":([0-9.]+)')
_NAME = re.compile(rb'"connection":"([^"]+)"')


@dataclass
class Measured:
    """`late_ms` of each change, sorted; `cores` that the server took; changes that are `missing`, as later ones of
    their row came in the same patch; the seconds until all queries were open."""

    late_ms: list[float]
    cores: float
    missing: int
    opened_s: float

    def quantile_ms(self, of_hundred: int) -> float:
        """A percentile."""
        return statistics.quantiles(self.late_ms, n=100)[of_hundred - 1]


@dataclass
class _Seen:
    """All that the streams have read: `late_s` of changes, the last one `at`, the queries whose rows have come."""

    late_s: list[float] = field(default_factory=list)
    snapshots: int = 0
    at: float = 0.0
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))


def measure(queries: int, streams: int, seconds: int) -> Measured:
    """Open the queries, and let each change once in each of so many seconds. Raises: RuntimeError."""
    command = [sys.executable, "-m", "benchmarks.systems.live_server", str(queries), str(streams)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        return asyncio.run(_measured(server, int(server.stdout.readline()), queries, streams, seconds))
    finally:
        server.communicate()


async def _measured(server: "subprocess.Popen[str]", port: int, queries: int, streams: int, seconds: int) -> Measured:
    seen, each = _Seen(), queries // streams
    began = time.perf_counter()
    reading = [asyncio.create_task(_stream(port, range(n * each, (n + 1) * each), seen)) for n in range(streams)]
    try:
        await _until(lambda: seen.snapshots == queries, reading)
        opened_s = time.perf_counter() - began
        await _round(server, _FIRST_S)
        await _until(lambda: time.time() - seen.at > _QUIET_S, reading)
        seen.late_s.clear()
        used_s = await _round(server, seconds)
        await _until(lambda: len(seen.late_s) == seconds * queries or time.time() - seen.at > _QUIET_S, reading)
        late_ms = sorted(late * 1e3 for late in seen.late_s)
        return Measured(late_ms, used_s / seconds, seconds * queries - len(late_ms), opened_s)
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def _round(server: "subprocess.Popen[str]", seconds: int) -> float:
    """Let the rows change for so long. Returns the server's processor time."""
    assert server.stdin is not None
    assert server.stdout is not None
    print(seconds, file=server.stdin, flush=True)
    return float(await asyncio.to_thread(server.stdout.readline))


async def _until(done: Callable[[], bool], reading: "list[asyncio.Task[None]]") -> None:
    end = time.monotonic() + _PATIENCE_S
    while not done():
        for task in reading:
            if task.done():
                task.result()
                raise RuntimeError("sockets: a stream has ended")
        if time.monotonic() > end:
            raise RuntimeError(f"sockets: not all has come within {_PATIENCE_S:.0f} s")
        await asyncio.sleep(0.01)


async def _stream(port: int, owners: range, seen: _Seen) -> None:
    """Open a stream with a query for each owner, and take what comes."""
    reader, writer = await _asked(port, "GET", "/v1/live")
    left = b""
    while data := await reader.read(1 << 20):
        now = seen.at = time.time()
        whole, separator, left = (left + data).rpartition(b"\n\n")
        whole += separator
        if name := _NAME.search(whole):
            async with seen.opening:  # a server has few connections beside its streams
                await _open(port, name[1].decode(), owners)
        seen.snapshots += whole.count(b"event: snapshot\n")
        seen.late_s += [now - float(at) for at in _AT.findall(whole)]
    writer.close()


async def _open(port: int, stream: str, owners: range) -> None:
    for begin in range(0, len(owners), _OPENED_AT_ONCE):
        asked = [
            {"id": f"q{owner}", "name": "of_owner", "args": {"owner": owner}}
            for owner in owners[begin : begin + _OPENED_AT_ONCE]
        ]
        reader, writer = await _asked(port, "POST", f"/v1/live/{stream}", json.dumps({"open": asked}).encode())
        status = await reader.readline()
        writer.close()
        if b" 204" not in status:
            raise RuntimeError(f"sockets: queries were refused: {status.decode().strip()}")


async def _asked(port: int, method: str, path: str, body: bytes = b"") -> tuple[StreamReader, StreamWriter]:
    """Send a request; what is read is the answer, with its head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return reader, writer
