"""A Faust app with a recursive topology in it: an org chart, and how many people each manager has below.

    faust -A app worker -l info              in this folder, with a broker on localhost:9092
    faust -A app send employees …            or `python -m`, or any producer: see docs/faust.md
    faust -A app eddy wait && curl localhost:6066/managers/ann

Topics `employees` and `headcount` have to exist: eddy topics create employees headcount --bootstrap localhost:9092
"""

import os

import faust
from faust.types import StreamT
from faust.web import Request, Response, View

import eddy


class Employee(faust.Record, serializer="json"):
    name: str
    manager: str = ""  # nobody


class Headcount(faust.Record, serializer="json"):
    people: int


app = faust.App(
    "org-chart",
    broker=os.environ.get("BROKER", "kafka://localhost:9092"),
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
)

# The recursive part, which Faust alone cannot say: everybody counts for the manager, and for the manager's manager …
topology = eddy.Topology("headcount")
managers = topology.table("employees", key=eddy.String, value=eddy.faust.record(Employee)).map_values(
    lambda employee: employee.manager, value=eddy.String, name="managers"
)
(
    managers.to_relation()
    .map(lambda name, manager: (manager, 1))
    .recursively(lambda rows: rows.join(managers, lambda name, one, manager: (manager, one)), name="chain-of-command")
    .group_by_key()
    .count("people-below")
    .map_values(lambda people: Headcount(people=people), value=eddy.faust.record(Headcount))
    .to("headcount")
)
eddy.faust.host(app, topology)

# The rest is Faust as ever: an agent reads what eddy writes, and a page shows it.
people: dict[str, int] = {}
counts = app.topic("headcount", key_type=str, key_serializer="raw", value_type=Headcount, allow_empty=True)


@app.agent(counts)
async def show(stream: StreamT[Headcount]) -> None:
    async for event in stream.events():
        people[str(event.key)] = event.value.people if event.value else 0


@app.page("/managers/{name}")
async def manager(view: View, request: Request, name: str) -> Response:
    return view.json({"name": name, "people": people.get(name, 0)})


if __name__ == "__main__":
    app.main()
