"""SQL types: their names, the implicit casts between them, and the Python type of each SQL type.

    boolean bool    smallint integer bigint int    numeric Decimal    real double float
    text str        timestamp datetime (without a zone)        null of every type None

A quoted string is `unknown` until its context gives it a type, as in PostgreSQL.
"""

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "DOUBLE",
    "INTEGER",
    "NUMERIC",
    "PYTHON_TYPES",
    "REAL",
    "SMALLINT",
    "TEXT",
    "TIMESTAMP",
    "TYPE_NAMES",
    "UNKNOWN",
    "Type",
    "assignable",
    "common_type",
    "parse_type",
]

_NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double")
_NAMES = {
    "bool": "boolean",
    "int2": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "decimal": "numeric",
    "float4": "real",
    "float": "double",
    "float8": "double",
    "double precision": "double",
    "varchar": "text",
    "character varying": "text",
    "string": "text",
    "timestamp without time zone": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Type:
    """A type. `precision` and `scale` are p and s of numeric(p, s)."""

    kind: str
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        return self.kind if self.precision is None else f"{self.kind}({self.precision},{self.scale or 0})"

    @property
    def number(self) -> bool:
        """Whether it is a type of numbers."""
        return self.kind in _NUMBERS

    @property
    def integral(self) -> bool:
        """Whether the type is smallint, integer or bigint."""
        return self.kind in _NUMBERS[:3]

    @property
    def floating(self) -> bool:
        """Whether it is a type of binary floating point numbers."""
        return self.kind in {"real", "double"}

    @property
    def rank(self) -> int:
        """The rank of a type of numbers.

        A type can represent the values of all types with a lower rank.
        """
        return _NUMBERS.index(self.kind)


BOOLEAN, TEXT, TIMESTAMP, UNKNOWN = Type("boolean"), Type("text"), Type("timestamp"), Type("unknown")
SMALLINT, INTEGER, BIGINT = Type("smallint"), Type("integer"), Type("bigint")
NUMERIC, REAL, DOUBLE = Type("numeric"), Type("real"), Type("double")

PYTHON_TYPES: dict[type, Type] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: TEXT,
    decimal.Decimal: NUMERIC,
    datetime.datetime: TIMESTAMP,
}
"""The SQL type of each Python type."""

TYPE_NAMES = "boolean, smallint, integer, bigint, numeric(p, s), real, double precision, text or timestamp"
"""The list of types, as text for messages."""

_KINDS = {*_NUMBERS, "boolean", "text", "timestamp"}


def parse_type(name: str) -> Type | None:
    """Return the type with this name, or None.

    >>> str(parse_type("Numeric(10, 2)")), str(parse_type("int")), parse_type("money")
    ('numeric(10,2)', 'integer', None)
    """
    head, _, tail = name.strip().lower().partition("(")
    kind = _NAMES.get(" ".join(head.split()), " ".join(head.split()))
    if kind not in _KINDS:
        return None
    if not tail or kind == "text":
        return Type(kind)  # varchar(n) accepts longer texts, as Materialize's text does
    numbers = [part.strip() for part in tail.rstrip(")").split(",")]
    if kind != "numeric" or not all(part.isdecimal() for part in numbers) or len(numbers) > 2:
        return None
    precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
    return Type(kind, precision, scale) if 1 <= precision <= 39 and scale <= precision else None


def common_type(types: Sequence[Type]) -> Type | None:
    """Return the type to which all of `types` can be implicitly cast, or None."""
    known = list(dict.fromkeys(found for found in types if found is not UNKNOWN and found.kind != "unknown"))
    if not known:
        return UNKNOWN
    if len(known) == 1:
        return known[0]
    if all(found.number for found in known):
        highest = max(known, key=lambda found: found.rank)
        return DOUBLE if highest is REAL and any(found == NUMERIC for found in known) else Type(highest.kind)
    return None


def assignable(source: Type, target: Type) -> bool:
    """Return whether a value fits a declared column: a number fits any column of numbers, any value fits text."""
    same = source.kind in (target.kind, "unknown")
    return same or (source.number and target.number) or target.kind == "text"
