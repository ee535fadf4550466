"""A web application around a worker and its tables, in Starlette: uvicorn examples.web:app

POST /nodes {"node": "bob", "parent": "ann"}   writes, and answers with the version that has it
GET  /tree/ann?at_least=VERSION                reads two tables at one version
GET  /tables/v1/tables/descendants             all tables, as eddy serve has them
"""

import contextlib
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import eddy
from eddy.serve import tables_app

topology = eddy.Topology("web")
parents = topology.table("web-nodes", key=eddy.String, value=eddy.String, name="nodes")
(
    parents.to_relation()
    .map(lambda node, parent: (parent, 1))
    .recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors")
    .group_by_key()
    .count("descendants")
)

mount = Mount("/tables", Starlette())


async def add(request: Request) -> JSONResponse:
    given = await request.json()
    state = request.app.state
    written = await state.log.write_async("web-nodes", {given["node"]: given["parent"]})
    version = await state.tables.wait_async(written)
    return JSONResponse({"version": version.token}, 201)


async def tree(request: Request) -> JSONResponse:
    tables, node = request.app.state.tables, request.path_params["node"]
    await tables.wait_async(request.query_params.get("at_least"))
    with tables.snapshot() as snapshot:
        parent, below = snapshot["nodes"].get(node), snapshot["descendants"].get(node, 0)
        return JSONResponse({"parent": parent, "descendants": below, "exact": snapshot.version.exact})


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    log = eddy.open_log(os.environ.get("WEB_DATA", ".eddy/log"))
    eddy.create_topics(topology, log)
    with contextlib.closing(log), eddy.run(topology, log):
        async with eddy.open_tables(topology, log) as tables:
            app.state.log, app.state.tables = log, tables
            mount.app = tables_app(tables)
            yield


app = Starlette(routes=[Route("/nodes", add, methods=["POST"]), Route("/tree/{node}", tree), mount], lifespan=lifespan)
