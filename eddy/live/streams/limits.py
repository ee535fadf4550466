"""The bounds of live queries over HTTP, for one caller and for all."""

import threading
from collections import Counter

import msgspec

from eddy.live.query.refusals import QueryLimitError
from eddy.live.server.loading import TABLE_ROWS

__all__ = ["MAX_LINGER_S", "Limits", "Quota"]

MAX_LINGER_S = 600.0


class Limits(msgspec.Struct, frozen=True):
    """Bounds of clients' requests, and of the data that is kept for clients.

    `requests` and `request_s` are for `eddy serve`.

    Args:
        retain_s: seconds that patches are kept for clients that reconnect.
        retain_ops, retain_bytes: bounds of the kept patches: operations of one query, bytes of all queries.
        linger_s: seconds that a query is kept up to date without a client; at least `retain_s`, at most 600.
        read_linger_s: the same for a query that was only read once, without a stream; at most `linger_s`.
        idle: the number of queries without a client; if there are more, the queries idle for longest are closed.
        idle_bytes: the approximate memory of these queries, except the latest, and of the tables that only they read;
            if they take more, the queries idle for longest are closed, too.
        requests, request_s: the number of requests at a time, not counting streams; the seconds in which a request has
            to arrive.
        connections, client_connections: the number of streams at a time, of all clients and of one.
        connection_queries, client_queries, queries: the number of queries of one stream, of one client, of all.
        rows: the number of rows of one query, with its nests.
        table_rows: the number of a table's rows that queries have in memory; the rows of a larger table are on disk.
        recent_bytes: the memory in which former rows of the last versions are kept, for traces since one of them.
        heartbeat_s: seconds without an event after which a comment is sent.
        slow_s: seconds that one event may take to be sent; then the stream ends.
    """

    retain_s: float = 60.0
    retain_ops: int = 10_000
    retain_bytes: int = 64 << 20
    linger_s: float = 300.0
    read_linger_s: float = 10.0
    idle: int = 1_000
    idle_bytes: int = 128 << 20
    requests: int = 56
    request_s: float = 5.0
    connections: int = 200
    client_connections: int = 100
    connection_queries: int = 1_000
    client_queries: int = 10_000
    queries: int = 50_000
    rows: int = 100_000
    table_rows: int = TABLE_ROWS
    recent_bytes: int = 16 << 20
    heartbeat_s: float = 15.0
    slow_s: float = 30.0

    @property
    def lingers_s(self) -> float:
        """`linger_s` within its bounds."""
        return min(MAX_LINGER_S, max(self.linger_s, self.retain_s))


class Quota:
    """Counts the streams and queries of each client, and refuses those beyond the limits. For any thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._streams: Counter[str] = Counter()
        self._queries: Counter[str] = Counter()

    @property
    def streams(self) -> int:
        """The number of streams."""
        return self._streams.total()

    def add_stream(self, client: str) -> None:
        """Count one stream more. Raises: QueryLimitError."""
        limits = self._limits
        with self._lock:
            if self.streams >= limits.connections:
                raise QueryLimitError(
                    f"live queries: {limits.connections:,} streams are open, which is the limit. Try later"
                )
            if self._streams[client] >= limits.client_connections:
                raise QueryLimitError(
                    f"live queries: this client has {limits.client_connections:,} streams open, which is the "
                    f"limit; one stream can have many queries"
                )
            self._streams[client] += 1

    def add_queries(self, client: str, already: int, more: int) -> None:
        """Count `more` further queries on a stream that has `already` queries.

        Raises: QueryLimitError; then none of them is counted.
        """
        limits = self._limits
        with self._lock:
            if already + more > limits.connection_queries:
                raise QueryLimitError(
                    f"live queries: {already + more:,} on one stream; at most {limits.connection_queries:,} are "
                    "allowed. Close some, or open another stream"
                )
            if self._queries[client] + more > limits.client_queries:
                raise QueryLimitError(
                    f"live queries: {self._queries[client] + more:,} by one client; at most "
                    f"{limits.client_queries:,} are allowed. Close some"
                )
            self._queries[client] += more

    def remove_queries(self, client: str, fewer: int) -> None:
        """Count `fewer` queries less, because they have ended."""
        with self._lock:
            self._queries[client] -= fewer
            if not self._queries[client]:
                del self._queries[client]

    def remove_stream(self, client: str) -> None:
        """Count one stream less, as it has ended."""
        with self._lock:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]
