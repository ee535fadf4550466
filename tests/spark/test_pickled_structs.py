"""Structs that no module holds are in another process what they are here: fields, defaults, options, methods."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.cloudpickle import cloudpickle

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark import pickled_structs
from tests.seeds import of_today
from tests.spark.rig import Rig
from tests.waiting import PATIENCE_S

FIELDS = [
    ("n: int", "0", 1),
    ("text: 'str | None'", "None", "é"),
    ("others: 'list[Deep]'", "[]", []),
    ("deep: 'Deep | None'", "None", None),
    ("table: dict[str, Inner]", "msgspec.field(default_factory=dict)", {"a": {"x": 1}}),
    ("named: int", 'msgspec.field(default=7, name="called")', 5),
    ('kind: Literal["a b", "c"]', '"c"', "a b"),
    ("limited: Annotated[int, msgspec.Meta(ge=0)]", "3", 4),
    ("color: Color", "Color.RED", "blue"),
    ("number: 'Number'", "Number.ONE", 1),
    ("data: Data", "Data()", {"x": 2}),
    ("typed: Typed | None", "None", {"x": 3}),
    ("pair: 'Named'", "Named()", [4]),
]
OPTIONS = ["frozen=True", "omit_defaults=True", "kw_only=True", 'rename="camel"', "tag=True", 'tag_field="is", tag="d"',
           "array_like=True", "order=True", "forbid_unknown_fields=True", "dict=True", "weakref=True"]  # fmt: skip
LOADER = """
import base64, json, sys, pickle
from pyspark import cloudpickle
for line in sys.stdin:
    given = json.loads(line)
    told = cloudpickle.loads(base64.b64decode(given))
    print(json.dumps(told()), flush=True)
"""


def notebook(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Structs as a notebook defines them: one within another, one derived, one that holds itself."""
    chosen = rng.sample(FIELDS, rng.randrange(2, len(FIELDS) + 1))
    lines = [f"    {of} = {default}" for of, default, _ in chosen]
    options = ", ".join(rng.sample(OPTIONS, rng.randrange(4)))
    if "tag=True" in options and "tag_field" in options:
        options = "tag=True"
    text = f"""
import msgspec
import dataclasses, enum
from typing import Annotated, ClassVar, Literal, NamedTuple, TypedDict

class Inner(msgspec.Struct, frozen=True):
    x: int

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

class Number(enum.IntEnum):
    ONE = 1

@dataclasses.dataclass(frozen=True)
class Data:
    x: int = 1

class Typed(TypedDict):
    x: int

class Named(NamedTuple):
    x: int = 1

class Base(msgspec.Struct, {"frozen=True" if "frozen" in options else "frozen=False"}):
    base: int = {rng.randrange(9)}

class Deep(Base, {options}):
    '''Documented.'''
    K: ClassVar[int] = 3
{chr(10).join(lines)}

    def __post_init__(self):
        self.check()

    def check(self):
        assert isinstance(self, Deep), type(self)
        assert "Deep" in super().__repr__()

    @property
    def more(self):
        return self.base + self.K

    @classmethod
    def made(cls):
        return cls()
"""
    return text, {of.split(":")[0]: value for of, _, value in chosen}


def told(of: Any, values: dict[str, Any]) -> list[Any]:
    """What a struct is and does, in a form that two processes can compare."""
    config = of.__struct_config__
    default, again = of.made(), msgspec.json.decode(msgspec.json.encode(of.made()), type=of)
    names = dict(zip(of.__struct_fields__, of.__struct_encode_fields__, strict=True))
    document: Any = {names[name]: value for name, value in values.items()}
    if config.tag is not None:
        document[config.tag_field] = config.tag
    if config.array_like:
        full = json.loads(msgspec.json.encode(default))
        document = full
    one = msgspec.convert(document, of)
    return [
        {name: repr(getattr(config, name)) for name in dir(config) if not name.startswith("_")},
        of.__struct_fields__,
        of.__struct_encode_fields__,
        of.__match_args__,
        of.__doc__,
        of.K,
        repr(default),
        repr(again),
        repr(one),
        msgspec.json.encode(one).decode(),
        one.more,
        [base.__name__ for base in of.__mro__],
    ]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Any]:
    """Another process, which evaluates pickled functions."""
    import base64

    child = subprocess.Popen(
        [sys.executable, "-c", LOADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    def ask(data: bytes) -> Any:
        stdin.write(json.dumps(base64.b64encode(data).decode()) + "\n")
        return json.loads(stdout.readline())

    yield ask
    child.stdin.close()
    child.wait(timeout=PATIENCE_S)
    child.stdout.close()


def check(elsewhere: Any, seed: int, dumps: Any = pickled_structs.dumps) -> None:
    text, values = notebook(random.Random(f"struct {seed}"))
    module = type(sys)("a_notebook")
    sys.modules["a_notebook"] = module
    try:
        exec(text, vars(module))
        from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

        register_pickle_by_value(module)
        of, here = module.Deep, told
        here_told = json.loads(json.dumps(told(of, values)))
        data = dumps(lambda: here(of, values))
        unregister_pickle_by_value(module)
    finally:
        del sys.modules["a_notebook"]
    assert elsewhere(data) == here_told, text


@pytest.mark.parametrize("seed", of_today(20))
def test_structs_are_elsewhere_what_they_are_here(elsewhere: Any, seed: int) -> None:
    check(elsewhere, seed)


def test_structs_as_cloudpickle_makes_them_are_found(elsewhere: Any) -> None:
    with pytest.raises((AssertionError, TypeError, ValueError)):
        check(elsewhere, 0, cloudpickle.dumps)


def in_a_notebook() -> eddy.Topology:
    """A topology whose structs no module holds."""

    class Item(msgspec.Struct, frozen=True):
        name: str
        count: int = 1

    class Order(msgspec.Struct, frozen=True):
        customer: str
        items: list[Item]

    topology = eddy.Topology("orders")
    orders = topology.table("orders", eddy.String, eddy.Struct(Order))
    items = orders.to_relation().flat_map(
        lambda key, order: [(order.customer, item) for item in order.items], value=eddy.Struct(Item)
    )
    items.group_by_key().aggregate(
        lambda: 0, lambda _, item, total: total + item.count, lambda _, item, total: total - item.count, "totals"
    ).to("totals", value=eddy.Int64)
    return topology


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_a_topology_with_structs_of_a_notebook_is_computed(spark: Any, tmp_path: Path) -> None:
    rig = Rig(tmp_path, in_a_notebook, [TopicSpec("orders", 1), TopicSpec("totals", 1)], spark)
    rig.one_task = 0
    first = b'{"customer": "ann", "items": [{"name": "a"}, {"name": "b", "count": 4}]}'
    rig.write("orders", [(b"1", first), (b"2", b'{"customer": "bob", "items": []}')])
    rig.backfill()
    assert {key: eddy.Int64.decode(value) for key, (_, value) in rig.latest("totals").items()} == {b"ann": 5}
    rig.work()
    verdict = rig.verify()
    assert verdict.status == 0, list(verdict.lines())
    rig.close()


@pytest.mark.parametrize("value", [eddy.Int64, eddy.Float64, eddy.String, eddy.Native, eddy.Json()])
def test_functions_of_a_join_by_foreign_keys_are_pickled(value: eddy.Serde[Any]) -> None:
    topology = eddy.Topology("shop")
    orders = topology.table("orders", key=eddy.String, value=eddy.Json())
    prices = topology.table("prices", key=eddy.String, value=value)
    orders.foreign_key_join(prices, lambda order: order["of"], lambda order, price: price, name="priced")
    functions = [node.function for node in topology.plan.nodes if hasattr(node, "function")]
    assert len([cloudpickle.loads(pickled_structs.dumps(function)) for function in functions]) >= 2
