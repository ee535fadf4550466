"""Finds the partitions, the serdes and, at the call of `load()`, the offsets that the options of a read mean.

topic   from the first record to `until`, or to the first open transaction
table   from the first record to the last cut, or to the first open transaction
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.inputs import OffsetRange, OpenLog
from eddy.connectors.spark.source.frame_columns import FrameColumn, chosen_paths, frame_columns
from eddy.connectors.spark.source.source_options import (
    NamedLog,
    Until,
    needed,
    option_error,
    serde_named,
)
from eddy.connectors.spark.source.source_program import SourceProgram
from eddy.serde import Plain, Serde

__all__ = ["PinnedSource", "TopicForm", "topic_form"]


@dataclass(frozen=True)
class TopicForm:
    """A topic, the serdes of its records, and the columns of its frames.

    `module` is the module of the application that defines the serdes. `paths` names the columns; None for all.
    """

    topic: str
    partitions: int
    key: Serde[Any]
    value: Serde[Any]
    module: str | None = None
    paths: tuple[str, ...] | None = None

    def choosing(self, options: Mapping[str, str]) -> "TopicForm":
        """Return the form with the columns that the option `columns` names. Raises: ConfigurationError."""
        text = options.get("columns")
        return self if text is None else replace(self, paths=chosen_paths(text, self.key, self.value))

    @property
    def columns(self) -> list[FrameColumn]:
        """The columns of a frame of the topic's records."""
        return frame_columns(self.key, self.value, self.paths)

    @property
    def decoded(self) -> dict[str, Serde[Any]]:
        """The serdes of the key and the value, as far as columns need them."""
        parts = {column.part for column in self.columns}
        return {part: serde for part, serde in (("key", self.key), ("value", self.value)) if part in parts}

    @property
    def ddl(self) -> str:
        """The columns, as Spark's text."""
        return ", ".join(f"`{one.name}` {one.column.ddl}" for one in self.columns)

    @property
    def parts(self) -> list[TopicPartition]:
        """The partitions of the topic."""
        return [TopicPartition(self.topic, p) for p in range(self.partitions)]


@dataclass(frozen=True)
class PinnedSource:
    """A topic between offsets."""

    form: TopicForm
    open_log: OpenLog
    ranges: tuple[OffsetRange, ...]
    before_ms: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], named: NamedLog, log: Log) -> "PinnedSource":
        """Return the topic that the options of a read name, on this log. Raises: ConfigurationError; ConnectorError."""
        if "as_of" in options:
            raise option_error(
                "read", "option 'as_of' is for tables; of a topic name the end. Write .option('until', …)"
            )
        form = topic_form("read", options, named, log).choosing(options)
        begins, ends = log.begin_offsets(form.parts), log.stable_offsets(form.parts)
        until = Until.of(options["until"], form.partitions) if "until" in options else Until()
        for part in form.parts if until.offsets else ():
            if (asked := (until.offsets or ())[part.partition]) > ends[part]:
                raise option_error(
                    "read",
                    f"option 'until': topic '{form.topic}' partition {part.partition} ends at offset {ends[part]}, "
                    f"before {asked}; an offset up to the end is needed. Omit 'until' to read all",
                )
            ends[part] = asked
        ranges = tuple(OffsetRange(tp.partition, begins[tp], max(begins[tp], ends[tp])) for tp in form.parts)
        return cls(form, named.open_log, ranges, until.before_ms)


def topic_form(where: str, options: Mapping[str, str], named: NamedLog, log: Log) -> TopicForm:
    """Return the topic that the options name, with its serdes. Raises: ConfigurationError."""
    topic = needed(where, options, "topic", "'TOPIC'")
    count = named.check_topic(where, log, topic)
    program = SourceProgram.load(where, options["app"]) if "app" in options else None
    given = {part: serde_named(where, options, part) for part in ("key", "value")}
    if program is not None:
        of_application = dict(zip(("key", "value"), program.serdes(where, log, topic), strict=True))
        given = {part: given[part] if part in options else serde for part, serde in of_application.items()}
    for part, serde in given.items():
        if serde is Plain:
            raise option_error(
                where,
                f"the application does not tell the type of the {part}s of topic '{topic}'; a serde is needed. "
                f"Write .option('{part}', 'string'), or name a serde in the topology: .to('{topic}', {part}=…)",
            )
    return TopicForm(topic, count, given["key"], given["value"], program.module if program else None)
