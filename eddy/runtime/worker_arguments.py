"""Checks the arguments of a worker, and of calls that make one, before anything is opened."""

from typing import Any

from eddy.config import Config, config_or_default
from eddy.connectors.log import check_log
from eddy.topology.arguments import check_member
from eddy.topology.topology import check_topology

__all__ = ["worker_config"]


def worker_config(where: str, topology: Any, log: Any, config: Any, member: Any) -> Config:
    """Check the arguments; return the settings, or the defaults for None. Raises: TopologyError for a wrong type."""
    check_topology(where, topology)
    check_log(where, log)
    check_member(where, member)
    return config_or_default(where, config)
