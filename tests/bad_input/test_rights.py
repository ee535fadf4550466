"""What a user of the cluster may do: the rights that eddy lists are enough, and each that is missing is named."""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

import eddy
from eddy.errors import ConfigurationError, EddyError
from tests.bad_input.administrator import USER, Grant, created_by, granted_by
from tests.bad_input.rig import Rig
from tests.bad_input.topologies import family
from tests.descendants import counted
from tests.kafka import ADMIN, Secured

CHAIN = {str(n): str(n + 1) for n in range(8)}
LONGER = {str(n): str(n + 1) for n in range(-8, 0)}


def pairs_of(broker: Secured, user: str) -> list[str]:
    return [f"{key}={value}" for key, value in broker.client(user).items()]


class Estate:
    """The family on a cluster where an administrator has made the topics, and granted what eddy listed."""

    def __init__(self, broker: Secured) -> None:
        self.name = f"app-{uuid.uuid4().hex[:8]}"
        self.broker = broker
        self.administrator = Rig(self.name, pairs_of(broker, ADMIN))
        self.administrator.create("nodes", "descendants", partitions=2)
        with pytest.raises(ConfigurationError) as listed:
            self.administrator.worker(family(self.administrator), eddy.Config(create_topics=False))
        self.administrator.log.create_topics(created_by(str(listed.value)))
        self.grants = granted_by(str(listed.value))
        self.nodes: dict[str, str] = {}
        self.grant(self.grants)

    def grant(self, grants: Iterable[Grant]) -> None:
        """Grant, and wait until it holds."""
        bindings = [grant.binding() for grant in grants]
        for future in self.administrator.admin.create_acls(bindings).values():
            future.result()
        self.administrator.wait(lambda: set(bindings) <= self.held())

    def revoke(self, grant: Grant) -> None:
        """Take it back, and wait until it is gone."""
        of = grant.binding()
        exactly = AclBindingFilter(
            of.restype, of.name, of.resource_pattern_type, of.principal, of.host, of.operation, of.permission_type
        )
        for future in self.administrator.admin.delete_acls([exactly]).values():
            future.result()
        self.administrator.wait(lambda: of not in self.held())

    def held(self) -> set[AclBinding]:
        """All that the user was granted."""
        pattern, operation = ResourcePatternType.ANY, AclOperation.ANY
        everything = AclBindingFilter(
            ResourceType.ANY, None, pattern, f"User:{USER}", None, operation, AclPermissionType.ANY
        )
        return set(self.administrator.admin.describe_acls(everything).result())

    def run(
        self,
        nodes: dict[str, str],
        *members: str,
        until: Callable[[list[eddy.Worker]], object] = lambda workers: True,
    ) -> None:
        """Workers of the user take in new nodes, until all is taken in and more."""
        rig = Rig(self.name, pairs_of(self.broker, USER))
        try:
            config = eddy.Config(create_topics=False, retry_s=3.0)
            workers = [rig.worker(family(rig), config, member=member) for member in members]
            rig.share(*workers)
            self.administrator.write("nodes", nodes.items())
            self.nodes |= nodes
            rig.settle(*workers)
            rig.wait(lambda: until(workers) or sum(worker.step(0.01) for worker in workers))
        finally:
            rig.close()

    def right(self) -> bool:
        """Whether the result is."""
        return self.administrator.table("descendants", eddy.Int64) == counted(self.nodes)


@pytest.fixture(scope="module")
def estate(secured_broker: Secured) -> Iterator[Estate]:
    made = Estate(secured_broker)
    yield made
    made.administrator.close()


def test_the_rights_that_are_listed_are_enough(estate: Estate) -> None:
    """Two workers: rows go through the loop, which is purged behind them."""
    estate.run(CHAIN, "0", "1", until=lambda workers: sum(worker.statistics.purged_offsets for worker in workers))
    assert estate.right()


NEEDED = ["Read source", "Write sink", "Read internal", "Write internal", "Read group", "Write transactional-id"]
IMPLIED = ["Describe source", "Describe sink", "Describe internal", "Describe group", "Describe transactional-id"]
"""What is allowed to read or write may describe; they are listed for those who look for them."""
SPARED = ["DescribeConfigs sink", "DescribeConfigs internal"]
"""Without these limits and drift go unseen, and the work goes on."""


def the(estate: Estate, which: str) -> Grant:
    """The grant of this name."""
    operation, resource = which.split()
    topics = {"source": "nodes-of-", "sink": "descendants-of-", "internal": f"{estate.name}-"}
    (found,) = [
        grant
        for grant in estate.grants
        if grant.operation == operation
        and (grant.name.startswith(topics[resource]) if resource in topics else grant.resource == f"--{resource}")
        and (resource not in topics or grant.resource == "--topic")
    ]
    return found


def test_every_right_is_of_one_kind(estate: Estate) -> None:
    kinds = [the(estate, which) for which in [*NEEDED, *IMPLIED, *SPARED, "Delete internal"]]
    assert sorted(kinds) == sorted(estate.grants)


@pytest.mark.parametrize("which", NEEDED)
def test_a_right_that_is_missing_is_named_and_its_grant_mends_it(estate: Estate, which: str) -> None:
    grant = the(estate, which)
    estate.revoke(grant)
    try:
        with pytest.raises(ConfigurationError, match=grant.name):
            estate.run({f"node-{which}": "0"}, "0")
    finally:
        estate.grant([grant])
    estate.run({}, "0")
    assert estate.right()


@pytest.mark.parametrize("which", [*IMPLIED, *SPARED])
def test_a_right_that_another_implies_or_that_looks_only_is_not_missed(estate: Estate, which: str) -> None:
    grant = the(estate, which)
    estate.revoke(grant)
    try:
        estate.run({f"node-{which}": "0"}, "0")
        assert estate.right()
    finally:
        estate.grant([grant])


def test_without_delete_a_purge_is_put_off(estate: Estate, caplog: pytest.LogCaptureFixture) -> None:
    grant = the(estate, "Delete internal")
    estate.revoke(grant)
    try:
        estate.run(
            LONGER,
            "0",
            "1",
            until=lambda workers: re.search(rf"purge postponed: .*{estate.name}-", caplog.text),
        )
        assert estate.right()
    finally:
        estate.grant([grant])


def test_without_any_right_topics_are_said_to_be_missing_or_unseen(estate: Estate) -> None:
    rig = Rig(estate.name, pairs_of(estate.broker, "stranger"))
    with pytest.raises(ConfigurationError, match=rig.topic("nodes")):
        rig.worker(family(rig))
    rig.close()


@pytest.mark.parametrize("create", [True, False])
def test_internal_topics_that_may_not_be_made_are_named(estate: Estate, create: bool) -> None:
    """The same lines for those who let eddy try, and for those who do not."""
    topology = eddy.Topology(f"{estate.name}-more")
    rig = Rig(estate.name, pairs_of(estate.broker, USER))
    topology.table(rig.topic("nodes"), eddy.String, eddy.String, name="nodes").to(rig.topic("descendants"))
    with pytest.raises(EddyError, match=f"{estate.name}-more-"):
        rig.worker(topology, eddy.Config(create_topics=create))
    rig.close()


def test_a_wrong_password_is_the_administrators_matter(estate: Estate) -> None:
    rig = Rig(estate.name, [f"{k}={v}" for k, v in estate.broker.client(USER, "wrong").items()])
    with pytest.raises(ConfigurationError, match="uthentication") as refused:
        rig.worker(family(rig))
    assert "wrong" not in str(refused.value)
    rig.close()
