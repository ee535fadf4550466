"""Shows all workers of an application on the page of one worker, which asks the other workers at given addresses.

/worker     this worker: its name, state, partitions with their lag
/workers    the same for this worker and each other worker, each once; a worker that does not answer is away, with
            the reason

Workers do not know one another's addresses from the group. A browser may ask only the server of its page. So this
server asks the others with its own token, all at the same time, and each has two seconds to answer.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

import h11
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from eddy.errors import ConfigurationError
from eddy.serve.answers import answer
from eddy.serve.endpoint import Endpoint, is_address
from eddy.serve.state import readiness
from eddy.serve.worker_watch import WorkerWatch

__all__ = ["OwnedPartition", "WorkerTold", "check_peers", "worker_routes"]

_ANSWER_S = 2.0
_MAX_BYTES = 1 << 20


class OwnedPartition(msgspec.Struct, frozen=True):
    """A partition that a worker owns, and its lag in offsets when the log was last read; None before that."""

    topic: str
    partition: int
    lag: int | None


class WorkerTold(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a worker reports. A worker that does not answer has only an address, a reason, and a time.

    `server` is a random name of its server, by which a worker knows itself among its peers. `in_loops` counts rows in
    loops and repartitions on the worker's own partitions; only the sum over all workers has a meaning.
    """

    address: str = ""
    server: str = ""
    member: str | None = None
    state: str = ""
    reason: str = ""
    partitions: list[OwnedPartition] = []
    in_loops: int = 0
    away_s: float | None = None
    """Seconds for which it has not answered this server; None if it has answered."""


def check_peers(peers: Sequence[str]) -> None:
    """Check that each text is an address of another worker. Raises: ConfigurationError."""
    for peer in peers:
        if not is_address(peer) or not peer.rpartition(":")[2].strip("0"):
            raise ConfigurationError(
                f"http peer '{peer}': not an address; the --http of another worker is needed, as --http-peer host:8081"
            )


@dataclass
class _Peer:
    address: str
    heard_at: float

    async def ask(self, token: bytes | None) -> WorkerTold:
        """Ask another worker for its state. Its whole answer may take `_ANSWER_S` seconds."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                told = _read(await self._answered(token))
        except TimeoutError:
            return self._away(f"it has not answered within {_ANSWER_S:g} seconds")
        except ConnectionRefusedError:
            return self._away("the connection is refused")
        except (OSError, ValueError, h11.ProtocolError) as error:
            return self._away(str(error) or type(error).__name__)
        self.heard_at = time.monotonic()
        return msgspec.structs.replace(told, address=self.address)

    def _away(self, reason: str) -> WorkerTold:
        return WorkerTold(address=self.address, reason=reason, away_s=round(time.monotonic() - self.heard_at, 1))

    async def _answered(self, token: bytes | None) -> bytes:
        """Return the body of the answer to a request for the worker. Raises: OSError; h11.ProtocolError; ValueError."""
        host, _, port = self.address.rpartition(":")
        asking = h11.Connection(h11.CLIENT)
        headers = [("Host", self.address), ("Connection", "close")]
        headers += [] if token is None else [("Authorization", f"Bearer {token.decode()}")]
        reader, writer = await asyncio.open_connection(host.strip("[]") or "127.0.0.1", int(port))
        with closing(writer):
            request = h11.Request(method="GET", target="/worker", headers=headers)
            writer.write((asking.send(request) or b"") + (asking.send(h11.EndOfMessage()) or b""))
            body = b""
            while not isinstance(event := asking.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    data = await reader.read(_MAX_BYTES)
                    if not data and asking.their_state is h11.SEND_RESPONSE:
                        raise OSError("it has closed the connection without an answer")
                    asking.receive_data(data)
                elif isinstance(event, h11.Response) and event.status_code != 200:
                    raise OSError(f"it answers with status {event.status_code}")
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > _MAX_BYTES:
                        raise ValueError("it answers without end")
            return body


def _read(body: bytes) -> WorkerTold:
    """Return the state in an answer. Raises: ValueError for an answer of another program."""
    try:
        told = msgspec.json.decode(body, type=WorkerTold)
    except RecursionError as error:
        raise ValueError("it answers with nested lists without end") from error
    if not told.state:
        raise ValueError("it answers, and is not a worker")
    return told


def worker_routes(watch: WorkerWatch, endpoint: Endpoint, peers: Sequence[str]) -> list[BaseRoute]:
    """Return the routes /worker and /workers. Requests for all workers are answered one at a time."""
    began, server = time.monotonic(), secrets.token_hex(8)
    others = [_Peer(address, began) for address in peers]
    one_at_a_time = asyncio.Lock()

    async def own(request: Request) -> Response:
        return answer(_own(watch, server))

    async def workers(request: Request) -> Response:
        async with one_at_a_time:
            asked = await asyncio.gather(*(peer.ask(endpoint.token) for peer in others))
            return answer({"workers": _each_once([_own(watch, server), *asked])})

    return [Route("/worker", own), Route("/workers", workers)]


def _each_once(told: Iterable[WorkerTold]) -> list[WorkerTold]:
    """Return the workers, each once: a worker that has answered at another address already is left out."""
    found: dict[str, WorkerTold] = {}
    for each in told:
        found.setdefault(each.server or each.address, each)
    return list(found.values())


def _own(watch: WorkerWatch, server: str) -> WorkerTold:
    found = readiness(watch.facts())
    worker, reading = watch.worker, watch.reading
    lags = {} if reading is None else reading.partition_lags
    return WorkerTold(
        server=server,
        member=None if worker is None else worker.member,
        state=found.state,
        reason=found.reason,
        partitions=[OwnedPartition(tp.topic, tp.partition, lags.get(tp)) for tp in sorted(watch.owned)],
        in_loops=watch.in_loops,
    )
