"""The embedded log: topics, groups and transactions in one SQLite file in a folder."""

from eddy.connectors.local.log import LocalLog

__all__ = ["LocalLog"]
