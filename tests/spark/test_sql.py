"""Views of SQL on Spark: joins, aggregates and windows, and recursion in each of its forms."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from tests.seeds import in_turn, on_days
from tests.spark.rig import Rig, check_backfill

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

VIEWS = {
    "spent": """
        SELECT person.name, person.boss, count(orders.id) AS orders, coalesce(sum(total), 0) AS total
        FROM person LEFT JOIN orders ON orders.customer = person.name GROUP BY person.name, person.boss
    """,
    "idle": """
        SELECT name FROM person WHERE NOT EXISTS (SELECT 1 FROM orders WHERE orders.customer = person.name)
        EXCEPT SELECT boss FROM person
    """,
    "ways": """
        WITH RECURSIVE r (name, steps) AS (
            SELECT name, 0 FROM person WHERE boss IS NULL
            UNION ALL
            SELECT person.name, steps + 1 FROM r JOIN person ON person.boss = r.name WHERE steps < 9
        )
        SELECT name, max(steps) AS steps FROM r GROUP BY name
    """,
    "reached": """
        WITH RECURSIVE r (name) AS (
            SELECT name FROM person WHERE boss IS NULL
            UNION
            SELECT person.name FROM r JOIN person ON person.boss = r.name
        )
        SELECT name FROM r
    """,
    "cycles": """
        WITH MUTUALLY RECURSIVE above (name text, boss text) AS (
            SELECT name, boss FROM person WHERE boss IS NOT NULL
            UNION
            SELECT above.name, person.boss FROM above JOIN person ON above.boss = person.name
            WHERE person.boss IS NOT NULL
        )
        SELECT name, bool_or(name = boss) AS cycle, count(*) AS above FROM above GROUP BY name
    """,
    "hopping": """
        SELECT customer AS name, max(window_end) AS last
        FROM HOP(orders, total, INTERVAL '2 milliseconds', INTERVAL '5 milliseconds') GROUP BY customer
    """,
    "sessions": """
        SELECT customer AS name, count(DISTINCT window_start) AS sessions FROM TABLE(SESSION(
            TABLE orders PARTITION BY customer, DESCRIPTOR(total), INTERVAL '3' MILLISECONDS
        )) GROUP BY customer
    """,
    "largest": "SELECT customer AS name, total FROM orders ORDER BY total DESC, customer LIMIT 2 OFFSET 1",
}


class Person(msgspec.Struct, frozen=True):
    name: str
    boss: str | None = None


class Order(msgspec.Struct, frozen=True):
    customer: str
    total: int


def company() -> eddy.Topology:
    topology = eddy.Topology("company")
    tables = {
        "person": topology.table("people", eddy.Int64, eddy.Struct(Person)),
        "orders": (
            topology.table("orders", eddy.Int64, eddy.Struct(Order)),
            {"id": "bigint", "customer": "text", "total": "bigint"},
        ),
    }
    for name, text in VIEWS.items():
        view = topology.sql(text, tables, name=name, key="name")
        view.to_table().map_values(view.as_object).to(name, key=eddy.String, value=eddy.Json())
    return topology


def person(number: int, name: str, boss: str | None = None) -> tuple[bytes, bytes]:
    return eddy.Int64.encode(number), eddy.Struct(Person).encode(Person(name, boss))


def order(number: int, customer: str, total: int) -> tuple[bytes, bytes]:
    return eddy.Int64.encode(number), eddy.Struct(Order).encode(Order(customer, total))


PEOPLE = [
    [person(1, "ann"), person(2, "bob", "ann"), person(3, "cleo", "bob"), person(4, "dan", "eve")],
    [person(5, "eve", "dan"), person(6, "fay", "cleo"), person(3, "cleo", "dan"), person(7, "gus", "nobody")],
    [person(5, "eve", "ann"), (eddy.Int64.encode(2), None), person(8, "hal"), person(9, "ida", "hal")],
]
ORDERS = [
    [order(1, "bob", 10), order(2, "bob", 5), order(3, "hal", 7)],
    [order(1, "cleo", 10), order(4, "fay", 1)],
    [(eddy.Int64.encode(2), None), order(5, "gus", 3), order(3, "hal", 8)],
]


def rig_in(folder: Path, spark: Any) -> Rig:
    """What a backfill, or a first run, takes in."""
    topics = [TopicSpec(topic, 3) for topic in ("people", "orders", *VIEWS)]
    rig = Rig(folder, company, topics, spark)
    for people, orders in zip(PEOPLE[:2], ORDERS[:2], strict=True):
        rig.write("people", people)
        rig.write("orders", orders)
    return rig


@on_days({0, 1}, 4)
@pytest.mark.parametrize("one_task", [*in_turn([0, ONE_TASK], 2)], ids=["step-by-step", "in-one-task"])
def test_views_are_backfilled_continued_and_verified(one_task: int, tmp_path: Path, spark: Any) -> None:
    rig, scratch = rig_in(tmp_path / "backfilled", spark), rig_in(tmp_path / "scratch", spark)
    rig.one_task = one_task
    scratch.work()
    check_backfill(rig, scratch, {"people": PEOPLE[2], "orders": ORDERS[2]})
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert {part.name for part in verdict.compared if part.what == "sink"} == VIEWS.keys()
    found = {view: {row["name"]: row for row in map(json.loads, values(rig, view))} for view in VIEWS}
    assert found["ways"]["fay"] == {"name": "fay", "steps": 4}
    assert found["reached"].keys() == {"ann", "eve", "dan", "cleo", "fay", "hal", "ida"}
    assert found["cycles"]["fay"] == {"name": "fay", "cycle": False, "above": 4}
    assert found["spent"]["cleo"] == {"name": "cleo", "boss": "dan", "orders": 1, "total": "10"}
    assert found["idle"].keys() == {"ida"}
    assert found["hopping"]["cleo"] == {"name": "cleo", "last": 15}
    assert found["sessions"]["cleo"] == {"name": "cleo", "sessions": 1}
    assert {name: row["total"] for name, row in found["largest"].items()} == {"hal": 8, "gus": 3}
    for one in (rig, scratch):
        one.close()


def values(rig: Rig, topic: str) -> list[bytes]:
    return [value for _, value in rig.latest(topic).values()]
