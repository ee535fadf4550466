"""The options of the format `eddy`, checked before anything is read.

data | bootstrap, config, kafka.<setting>   the log: the embedded one in a folder, or a Kafka cluster
topic | table with as_of                    the records of a topic, or the latest row of each key of a table
app, key, value                             the serdes: of an application's topics, or by name
columns                                     the columns of the frame, and their order
until                                       the offsets, or the time, before which records are read
"""

import datetime
import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log
from eddy.connectors.spark.inputs import OpenLog
from eddy.errors import ConfigurationError
from eddy.serde import Bytes, Float64, Int64, Json, Serde, String

__all__ = [
    "READ_OPTIONS",
    "SERDES",
    "WRITE_OPTIONS",
    "NamedLog",
    "Until",
    "check_names",
    "needed",
    "option_error",
    "serde_named",
]

SERDES: Mapping[str, Serde[Any]] = {
    "string": String,
    "int64": Int64,
    "float64": Float64,
    "json": Json(),
    "bytes": Bytes,
}
"""The serdes that options name, as `--key-type` and `--value-type` do."""

LOG_OPTIONS = ("data", "bootstrap", "config")
READ_OPTIONS = (
    *LOG_OPTIONS,
    "topic",
    "table",
    "app",
    "key",
    "value",
    "until",
    "as_of",
    "columns",
    "max_offsets_per_trigger",
)
WRITE_OPTIONS = (*LOG_OPTIONS, "topic", "job", "batch", "app", "key", "value")
_KAFKA = "kafka."
_WAIT_S = 30.0


def option_error(where: str, text: str) -> ConfigurationError:
    """Return the error of an option; `where` is `read` or `write`."""
    return ConfigurationError(f"spark {where} of format 'eddy': {text}")


def check_names(where: str, options: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse unknown options. Raises: ConfigurationError."""
    if unknown := sorted(name for name in options if name not in known and not name.startswith(_KAFKA)):
        raise option_error(
            where,
            f"option '{unknown[0]}' is unknown; known ones are needed: {', '.join(known)} and kafka.SETTING. "
            f"Omit it, or correct its name",
        )


def needed(where: str, options: Mapping[str, str], name: str, example: str) -> str:
    """Return the value of an option. Raises: ConfigurationError if it is missing or empty."""
    if not (value := options.get(name)):
        raise option_error(where, f"option '{name}' is missing; it is needed. Write .option('{name}', {example})")
    return value


def serde_named(where: str, options: Mapping[str, str], part: str) -> Serde[Any]:
    """Return the serde that an option names, `string` by default. Raises: ConfigurationError for an unknown name."""
    name = options.get(part, "string")
    if name not in SERDES:
        raise option_error(
            where,
            f"option '{part}' is '{name}'; a serde is needed: {', '.join(SERDES)}. "
            "For a struct name the application that has the topic: .option('app', 'app.py:topology')",
        )
    return SERDES[name]


@dataclass(frozen=True)
class NamedLog:
    """The log that the options of a read or a write name. `open_log` opens the log in any process."""

    open_log: OpenLog
    shown: str

    @classmethod
    def of(cls, where: str, options: Mapping[str, str]) -> "NamedLog":
        """Find the log. Raises: ConfigurationError if no log or two are named, or the folder does not exist."""
        settings = {name.removeprefix(_KAFKA): value for name, value in options.items() if name.startswith(_KAFKA)}
        kafka = "bootstrap" in options or "config" in options or bool(settings)
        if kafka == ("data" in options):
            raise option_error(
                where,
                f"the options name {'two logs' if kafka else 'no log'}; one is needed. Write .option('data', DIR) for "
                "the embedded log, or .option('bootstrap', 'HOST:PORT') for Kafka",
            )
        if kafka:
            return cls(_kafka(options.get("bootstrap"), options.get("config"), settings), "kafka")
        folder = Path(options["data"]).resolve()
        if not folder.is_dir():
            raise option_error(
                where, f"option 'data': there is no folder '{folder}'; an existing log is needed. Correct the path"
            )
        return cls(functools.partial(LocalLog, folder, busy_timeout_s=_WAIT_S), str(folder))

    def check_topic(self, where: str, log: Log, topic: str) -> int:
        """Return the number of partitions of a topic. Raises: ConfigurationError if it does not exist."""
        if (spec := log.topics([topic]).get(topic)) is None:
            raise option_error(
                where,
                f"topic '{topic}' does not exist on {self.shown}; an existing topic is needed. "
                "List topics: eddy topics; or make it: eddy topics create",
            )
        return spec.partitions


def _kafka(bootstrap: str | None, config: str | None, settings: Mapping[str, str]) -> OpenLog:
    # Kafka's client is optional.
    from eddy.connectors.kafka import KafkaLog, KafkaSettings

    pairs = [f"{name}={value}" for name, value in settings.items()]
    return functools.partial(KafkaLog, KafkaSettings.of(bootstrap, [Path(config)] if config else [], pairs))


@dataclass(frozen=True)
class Until:
    """The end of a read: an offset for each partition, or a time in milliseconds since 1970."""

    offsets: tuple[int, ...] | None = None
    before_ms: int | None = None

    @classmethod
    def of(cls, text: str, partitions: int) -> "Until":
        """Read `[10, 12]`, `{"0": 10, "1": 12}`, or a time with its zone. Raises: ConfigurationError."""
        try:
            offsets = msgspec.json.decode(text, type=list[int] | dict[int, int])
        except msgspec.MsgspecError:
            return cls(before_ms=_moment(text))
        found = offsets if isinstance(offsets, dict) else dict(enumerate(offsets))
        if sorted(found) != list(range(partitions)) or min(found.values(), default=0) < 0:
            raise option_error(
                "read",
                f"option 'until' is '{text}'; the topic has {partitions} partitions: an offset is needed for each, "
                f"from 0 on. Write .option('until', '{[10] * partitions}')",
            )
        return cls(offsets=tuple(found[p] for p in range(partitions)))


def _moment(text: str) -> int:
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("it has no zone")
    except ValueError as error:
        raise option_error(
            "read",
            f"option 'until' is '{text}': {error}; offsets or a time with its zone are needed. "
            "Write .option('until', '[10, 12]') or .option('until', '2026-11-01T00:00:00Z')",
        ) from error
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
