"""All workers of an application, for the page of one of them: it asks the others, whose addresses it is given.

/worker     this worker: its name, state, partitions with their lag
/workers    the same of this worker and of each other one; one that does not answer is away, with the reason

Workers do not know one another's addresses from the group. A browser may ask only the server of its page, so that this
server asks the others, with its own token, each within two seconds and at the same time.
"""

import asyncio
import http.client
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

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
    """A worker as it tells of itself; of one that is away only the address, the reason and since when.

    `in_loops` are the rows in loops and repartitions as counted on its partitions: the sum over all workers counts.
    """

    address: str = ""
    member: str | None = None
    state: str = ""
    reason: str = ""
    partitions: list[OwnedPartition] = []
    in_loops: int = 0
    away_s: float | None = None
    """Seconds for which it has not answered this server; None if it has answered."""


def check_peers(peers: Sequence[str]) -> None:
    """Raises: ConfigurationError for a text that is no address of another worker."""
    for peer in peers:
        if not is_address(peer) or not peer.rpartition(":")[2].strip("0"):
            raise ConfigurationError(
                f"http peer '{peer}': not an address; the --http of another worker is needed, as --http-peer host:8081"
            )


@dataclass
class _Peer:
    address: str
    heard_at: float

    def ask(self, token: bytes | None) -> WorkerTold:
        """The other worker as it tells of itself. Called by one thread at a time."""
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]") or "127.0.0.1", int(port), timeout=_ANSWER_S)
        headers = {} if token is None else {"Authorization": f"Bearer {token.decode()}"}
        try:
            with closing(connection):
                connection.request("GET", "/worker", headers=headers)
                found = connection.getresponse()
                data = found.read(_MAX_BYTES)
                if found.status != 200:
                    raise OSError(f"it answers with status {found.status}")
                told = msgspec.json.decode(data, type=WorkerTold)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            away_s = round(time.monotonic() - self.heard_at, 1)
            return WorkerTold(address=self.address, reason=str(error) or type(error).__name__, away_s=away_s)
        self.heard_at = time.monotonic()
        return msgspec.structs.replace(told, address=self.address)


def worker_routes(watch: WorkerWatch, endpoint: Endpoint, peers: Sequence[str]) -> list[BaseRoute]:
    """The routes of this worker and of all. Requests for all are answered one at a time."""
    began = time.monotonic()
    others = [_Peer(address, began) for address in peers]
    one_at_a_time = asyncio.Lock()

    async def own(request: Request) -> Response:
        return answer(_own(watch))

    async def workers(request: Request) -> Response:
        async with one_at_a_time:
            asked = [asyncio.to_thread(peer.ask, endpoint.token) for peer in others]
            return answer({"workers": [_own(watch), *await asyncio.gather(*asked)]})

    return [Route("/worker", own), Route("/workers", workers)]


def _own(watch: WorkerWatch) -> WorkerTold:
    found = readiness(watch.facts())
    worker, reading = watch.worker, watch.reading
    lags = {} if reading is None else reading.partition_lags
    return WorkerTold(
        member=None if worker is None else worker.member,
        state=found.state,
        reason=found.reason,
        partitions=[OwnedPartition(tp.topic, tp.partition, lags.get(tp)) for tp in sorted(watch.owned)],
        in_loops=watch.in_loops,
    )
