"""The admin client: requests about topics, offsets and groups, with retries.

A transient failure is retried until the time limit of one request; after that the failure is raised as an error of
eddy, retriable or not.
"""

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from eddy.connectors.closing import close_within, free_within, keep
from eddy.connectors.kafka.cluster_trouble import UNANSWERED, ClusterTrouble, is_answered
from eddy.connectors.kafka.error_codes import error_of, is_transient, kafka_error, the_error
from eddy.connectors.kafka.host_names import Unresolved, unresolved
from eddy.connectors.kafka.slices import SLICE_S
from eddy.connectors.kafka.static_membership import assigned, shares_out
from eddy.connectors.log import Position, TopicPartition, TopicSpec
from eddy.errors import ConnectorError, SlotTakenError

__all__ = ["REQUEST_S", "Admin"]

T = TypeVar("T")

_log = logging.getLogger("eddy.kafka")
REQUEST_S = 10.0
"""Seconds that one request to a broker may take."""
_ANSWER_S = REQUEST_S + 5.0
_TELL_S = 3.0
"""Seconds after which a first request without an answer is logged. It is not aborted, as a broker may be busy."""
_CHECK = "Start one there, or check the address: --bootstrap HOST:PORT"
_RENEWAL_S = 4.0
"""Seconds without an answer after which a client is replaced: it may have lost its brokers for ever."""
_LATE_S = 20.0
"""Seconds for which a busy broker may still know a session after its end."""
_COORDINATOR_S = 3600.0
"""The client's own time limit for a request to a group's coordinator. If a request meets this limit while the broker is
paused, the process crashes when the broker resumes (librdkafka issue 4605). So eddy bounds its wait, not the request.
"""
_SHOWS_S = 60.0
"""Seconds within which all brokers know of a created or deleted topic."""
_PAUSE_S = 0.01
_NAMED = 8
"""The most topics that an error names."""
_SESSION_PAUSE_S = 0.5
_WORD = 1 << 64
_LEAST = "__consumer_offsets"  # Kafka's own topic, so that the request does not create one
_SHOWN = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.after.max.ms",
    "min.compaction.lag.ms",
    "delete.retention.ms",
)


class Admin:
    """Administrative requests to a cluster.

    `where` names the cluster in errors. `unstable_s` is the number of seconds that a transaction may be open.

    Three defects of librdkafka are avoided:

    - The admin client crashes if a coordinator has moved or is still loading (issue 5040). So positions are read by
      `outsider`, which makes a consumer with a group's name that never joins the group.
    - A client waits for ever if the coordinator that it knows was away for a while (5511). So each other request about
      a group has a client of its own.
    - A request to the leaders of partitions may wait for ever when a broker stops, and is abandoned after a while.
    """

    def __init__(
        self,
        made: Callable[[], AdminClient],
        where: str,
        unstable_s: float,
        outsider: Callable[[str], Consumer],
        trouble: ClusterTrouble,
        bootstrap: str,
    ) -> None:
        self._make_client, self._where, self._unstable_s = made, where, unstable_s
        self._client, self._closed = made(), False
        self._outsider, self._trouble = outsider, trouble
        self._outsiders: dict[str, Consumer] = {}
        self._unanswered = 0
        self._bootstrap, self._reached = bootstrap, False

    def answers(self) -> bool:
        """Whether a broker answers now. A client that got no answer for a while is replaced."""
        if is_answered(self._client, _LEAST):
            self._unanswered = 0
            return True
        self._miss()
        return False

    def _miss(self) -> None:
        """Count a request without an answer; after `UNANSWERED` such requests in a row, replace the client."""
        self._unanswered += 1
        if self._unanswered >= UNANSWERED:
            self._renew()

    def _renew(self) -> None:
        """Use a new client from now on."""
        self._unanswered, client = 0, [self._client]
        self._client = self._make_client()
        free_within(client, f"{self._where}: admin client")

    def reach(self, timeout_s: float) -> None:
        """Send the cheapest request to any broker. Raises: ConnectorError, retriable; ConfigurationError."""
        try:
            self._client.list_topics(_LEAST, timeout=timeout_s)
            self._reached = True
        except KafkaException as exception:
            self._client.poll(0)
            self._trouble.check(self._where)
            self._miss()
            reason = self._unresolved() or the_error(exception).str()
            raise ConnectorError(
                f"{self._where}: no broker answers: {reason}; a running broker is needed. {_CHECK}", retriable=True
            ) from exception

    def _unresolved(self) -> Unresolved | None:
        """Return the brokers' names if none of them can be resolved, and no broker has answered so far; else None."""
        return None if self._reached else unresolved(self._bootstrap)

    def _ask(self, what: str, request: Callable[[], T]) -> T:
        began = renewed = time.monotonic()
        told = self._reached
        while True:
            try:
                answer = request()
                self._reached = True
                return answer
            except KafkaException as exception:
                error = the_error(exception)
                self._client.poll(0)
                self._trouble.check(self._where)
                now = time.monotonic()
                if (names := self._unresolved()) and (names.final or now > began + _TELL_S):
                    raise ConnectorError(
                        f"{self._where}: {what}: no broker answers: {names}. {_CHECK}", retriable=True
                    ) from exception
                if not is_transient(error) or now > began + REQUEST_S:
                    raise kafka_error(f"{self._where}: {what}", error, "" if self._reached else _CHECK) from exception
                if now > began + _TELL_S and not told:
                    told = True
                    _log.warning(
                        "%s: no broker has answered for %.0f s, waiting for one. %s", self._where, now - began, _CHECK
                    )
                if now > renewed + _RENEWAL_S:
                    self._renew()
                    renewed = now
                time.sleep(_PAUSE_S)

    def _result(self, what: str, future: "Future[T]", client: AdminClient | None = None) -> T:
        try:
            return self._answer(what, future, client)
        except KafkaException as exception:
            raise kafka_error(f"{self._where}: {what}", the_error(exception)) from exception

    def _answer(self, what: str, future: "Future[T]", client: AdminClient | None = None) -> T:
        """Wait for the answer to a request of `client`, a request's own client, or of the shared client for None."""
        patience_s = _ANSWER_S if client is None else REQUEST_S
        try:
            return future.result(patience_s)
        except TimeoutError as error:
            keep(client or self._client, future)  # to free the client could take for ever, too
            if client is None:
                self._client = self._make_client()
            raise ConnectorError(f"{self._where}: {what}: no answer for {patience_s:g} s", retriable=True) from error

    # Topics

    def partitions(self, led: bool = False) -> dict[str, int]:
        """Return all topics with their partition counts; with `led`, only topics whose partitions all have a leader."""
        topics = self._ask("list topics", lambda: self._client.list_topics(timeout=SLICE_S)).topics
        return {
            name: len(topic.partitions)
            for name, topic in topics.items()
            if topic.error is None and not (led and any(partition.error for partition in topic.partitions.values()))
        }

    def topic_ids(self, names: Iterable[str]) -> Callable[[], dict[str, int]]:
        """Request the ids of the topics that exist, and return a function that waits for the answer."""
        wanted = sorted(set(names))
        if not wanted:
            return dict
        under_way = [self._described(wanted)]
        return lambda: self._ask(
            "describe topics", lambda: self._ids(under_way.pop() if under_way else self._described(wanted))
        )

    def _described(self, names: list[str]) -> "dict[str, Future[Any]]":
        return self._client.describe_topics(TopicCollection(names), request_timeout=REQUEST_S)

    def _ids(self, descriptions: "Mapping[str, Future[Any]]") -> dict[str, int]:
        """Return each topic's id as one number. Topics are omitted whose id the broker answers as 0, for unknown."""
        found: dict[str, int] = {}
        for name, future in descriptions.items():
            try:
                id_ = self._answer(f"describe topic '{name}'", future).topic_id
            except KafkaException as exception:
                if the_error(exception).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                continue
            high, low = id_.get_most_significant_bits(), id_.get_least_significant_bits()
            if number := (high % _WORD << 64) | low % _WORD:
                found[name] = number
        return found

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configs of topics that eddy uses; {} for a topic whose configs this user may not read."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self._client.describe_configs(resources, request_timeout=REQUEST_S)
        return {resource.name: self._config(resource.name, future) for resource, future in futures.items()}

    def _config(self, name: str, future: "Future[Any]") -> dict[str, str]:
        try:
            entries = self._answer(f"describe topic '{name}'", future)
        except KafkaException as exception:
            error = the_error(exception)
            if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART):
                return {}
            raise kafka_error(f"{self._where}: describe topic '{name}'", error) from exception
        return {key: entries[key].value for key in _SHOWN if key in entries and entries[key].value is not None}

    def create(self, specs: Iterable[TopicSpec], replication: int, configs: Mapping[str, str]) -> None:
        """Make topics, with `configs` as defaults; return once they have leaders."""
        wanted = {spec.name: spec for spec in specs}
        if not wanted:
            return
        if existing := sorted(self.partitions().keys() & wanted):
            raise ConnectorError(f"{self._where}: topic '{existing[0]}' exists already; a new name is needed")
        new = [NewTopic(s.name, s.partitions, replication, config={**configs, **s.configs}) for s in wanted.values()]
        futures = self._client.create_topics(new, operation_timeout=REQUEST_S)
        try:
            for name, future in futures.items():
                self._result(f"create topic '{name}'", future)
        finally:  # even if another process made a topic at the same time, since the caller may look it up next
            made = {name for name, future in futures.items() if _topic_exists(future)}
            self._wait_until(lambda known: known.keys() >= made, "new topics are in the metadata")

    def delete(self, names: Iterable[str]) -> None:
        """Remove the topics that exist; return once the metadata no longer has them."""
        wanted = self.partitions().keys() & set(names)
        if not wanted:
            return
        for name, future in self._client.delete_topics(sorted(wanted), operation_timeout=REQUEST_S).items():
            self._result(f"delete topic '{name}'", future)
        self._wait_until(
            lambda known: not known.keys() & wanted, "deleted topics are no longer in the metadata", led=False
        )

    def _wait_until(self, holds: Callable[[dict[str, int]], bool], what: str, led: bool = True) -> None:
        deadline = time.monotonic() + _SHOWS_S
        while not holds(self.partitions(led)):
            if time.monotonic() > deadline:
                raise ConnectorError(f"{self._where}: waited {_SHOWS_S:.0f} s until {what}", retriable=True)
            time.sleep(_PAUSE_S)

    # Offsets

    def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that is kept."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        wanted = {confluent_kafka.TopicPartition(*tp): spec for tp in partitions}
        if not wanted:
            return {}

        names = sorted({tp.topic for tp in wanted})
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        what = f"list offsets of {', '.join(map(repr, names[:_NAMED]))}{more}"

        def request() -> dict[TopicPartition, int]:
            futures = self._client.list_offsets(wanted, isolation_level=isolation, request_timeout=REQUEST_S)
            found = {TopicPartition(tp.topic, tp.partition): self._answer(what, f).offset for tp, f in futures.items()}
            # The client answers with negative offsets if the connection broke.
            if any(offset < 0 for offset in found.values()):
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the broker did not answer"))
            return found

        return self._ask(what, lambda: self._with_leaders(request))

    def _with_leaders(self, request: Callable[[], T]) -> T:
        """Return the answer to a request that is sent to the leaders of partitions.

        After a transient failure the leaders are looked up anew, for the next request.
        """
        try:
            return request()
        except KafkaException as exception:
            if is_transient(the_error(exception)):
                with contextlib.suppress(KafkaException):
                    self._client.list_topics(timeout=SLICE_S)
            raise

    def delete_before(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete records; offsets already deleted are ignored."""
        begins = self.begins(before)
        wanted = [confluent_kafka.TopicPartition(*tp, offset) for tp, offset in before.items() if offset > begins[tp]]
        if not wanted:
            return
        for tp, future in self._client.delete_records(wanted, request_timeout=REQUEST_S).items():
            self._result(f"delete records of '{tp.topic}' partition {tp.partition}", future)

    # Groups

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Return the group's stable positions. Waits for an open transaction until it must have timed out."""
        wanted = [confluent_kafka.TopicPartition(*tp) for tp in partitions]
        if not wanted:
            return {}
        began = renewed = time.monotonic()
        while True:
            found, error = self._positions(group, wanted)
            if error is None:
                return {
                    TopicPartition(tp.topic, tp.partition): Position(tp.offset, tp.metadata or "")
                    for tp in found
                    if tp.offset >= 0
                }
            now = time.monotonic()
            if not is_transient(error) or now > began + self._unstable_s:
                raise kafka_error(f"{self._where}: positions of group '{group}'", error)
            if now > renewed + _RENEWAL_S:
                self._leave(group)
                renewed = now
            time.sleep(_PAUSE_S)

    def _positions(
        self, group: str, wanted: list[confluent_kafka.TopicPartition]
    ) -> tuple[list[confluent_kafka.TopicPartition], KafkaError | None]:
        if group not in self._outsiders:
            self._outsiders[group] = self._outsider(group)
        try:
            found = self._outsiders[group].committed(wanted, SLICE_S)
        except KafkaException as exception:
            return [], the_error(exception)
        return found, next((tp.error for tp in found if tp.error is not None), None)

    def _leave(self, group: str) -> None:
        """Close the client that reads a group's positions; the next request makes another client."""
        close_within(self._outsiders.pop(group).close, f"{self._where}: positions of group '{group}'")

    def groups(self) -> dict[str, int]:
        """Return all groups, each with the number of its members."""
        listed = self._ask(
            "list groups",
            lambda: self._answer("list groups", self._client.list_consumer_groups(request_timeout=REQUEST_S)),
        )
        for error in listed.errors:
            raise kafka_error(
                f"{self._where}: list groups", error if isinstance(error, KafkaError) else the_error(error)
            )
        names = [group.group_id for group in listed.valid]
        client = self._make_client()  # the client is kept until its futures are done, which may be never
        described = client.describe_consumer_groups(names, request_timeout=_COORDINATOR_S) if names else {}
        return {name: len(self._result(f"describe group '{name}'", f, client).members) for name, f in described.items()}

    def holder(self, group: str, name: str) -> str | None:
        """Return the id of the group's static member with the name `name`; None if there is no such member."""
        return next((m.member_id for m in self._members(group) if m.group_instance_id == name), None)

    def strangers(self, group: str) -> list[str]:
        """Return the members of a group that are not workers: their static name does not begin with the group's."""
        return sorted(
            f"client '{member.client_id}' on {(member.host or '').lstrip('/')}"
            for member in self._members(group)
            if not (member.group_instance_id or "").startswith(f"{group}-")
        )

    def _members(self, group: str) -> list[Any]:
        client = self._make_client()
        (future,) = client.describe_consumer_groups([group], request_timeout=_COORDINATOR_S).values()
        return list(self._result(f"describe group '{group}'", future, client).members)

    def outlast(self, group: str, name: str, counts: Mapping[str, int], session_s: float) -> None:
        """Wait for the session of the member `name` to end if its group's assignment does not cover these partitions.

        Raises: SlotTakenError if the session does not end: another worker has the name.
        """
        told = False
        patience_s = session_s + _LATE_S
        deadline = time.monotonic() + patience_s
        while True:
            owned = self._ask(f"list group '{group}'", lambda: self._assignments(group))
            if name not in owned or shares_out(owned.values(), counts):
                return
            if time.monotonic() > deadline:
                raise SlotTakenError(
                    f"{self._where}: group '{group}': '{name}' runs with other topics or numbers of partitions than "
                    f"these, and has not ended within {patience_s:g} s; each worker needs a name of its own. Stop it, "
                    "or give this one another: --member NAME"
                )
            if not told:
                _log.info("group '%s': '%s' had other topics; waiting until its session ends", group, name)
            told = True
            time.sleep(_SESSION_PAUSE_S)

    def _assignments(self, group: str) -> dict[str, frozenset[TopicPartition]]:
        """Return the partitions of each member of a group, by client name; {} during a rebalance, or without a group.

        The older call is used, which asks every broker. The newer call asks the coordinator alone, and can crash the
        process while the coordinator loads (librdkafka issue 5040).
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                listed = self._client.list_groups(group, timeout=SLICE_S)
        except KafkaException as exception:
            if the_error(exception).code() != KafkaError._PARTIAL:
                raise
            _log.warning("group '%s': not all brokers answer; the assignment of its partitions was not checked", group)
            return {}
        for found in listed:
            if found.error is not None:
                raise KafkaException(found.error)
        return {
            str(member.client_id): assigned(member.assignment or b"")
            for found in listed
            if found.state == "Stable"
            for member in found.members
        }

    def delete_group(self, group: str) -> None:
        """Delete a group; a group that does not exist is ignored."""
        client = self._make_client()
        (future,) = client.delete_consumer_groups([group], request_timeout=_COORDINATOR_S).values()
        try:
            self._answer(f"delete group '{group}'", future, client)
        except KafkaException as exception:
            error = the_error(exception)
            if error.code() == KafkaError.NON_EMPTY_GROUP:
                raise ConnectorError(
                    f"{self._where}: group '{group}' has members; only an empty group can be deleted. Stop its "
                    f"workers, and wait until their sessions have ended"
                ) from exception
            if error.code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise kafka_error(f"{self._where}: delete group '{group}'", error) from exception

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Set the positions of a group without members."""
        moved = [confluent_kafka.TopicPartition(*where, *position) for where, position in positions.items()]
        outsider = self._outsider(group)
        try:
            self._ask(f"set positions of group '{group}'", lambda: outsider.commit(offsets=moved, asynchronous=False))
        finally:
            close_within(outsider.close, f"{self._where}: positions of group '{group}'")

    def close(self) -> None:
        """Close all clients."""
        for group in list(self._outsiders):
            self._leave(group)
        if not self._closed:
            self._closed = True
            client = [self._client]
            del self._client
            free_within(client, f"{self._where}: admin client")


def _topic_exists(future: "Future[Any]") -> bool:
    """Whether the topic exists after a request to create it."""
    failure = future.exception()
    error = None if failure is None else error_of(failure)
    return failure is None or (error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS)
