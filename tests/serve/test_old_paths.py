"""Names and paths that users have imported stay importable for a while, with a warning."""

import importlib

import pytest

import eddy
import eddy.program.open_tables
import eddy.serve
from eddy.serve.endpoint import endpoint_of


@pytest.mark.parametrize(
    ("path", "name", "home", "known"),
    [
        ("eddy", "Views", "eddy", "Tables"),
        ("eddy", "views", "eddy", "open_tables"),
        ("eddy.program.views", "TablesSnapshot", "eddy.program.open_tables", "TablesSnapshot"),
        ("eddy.program.views", "Views", "eddy.program.open_tables", "Tables"),
        ("eddy.program.views", "views", "eddy.program.open_tables", "open_tables"),
        ("eddy.serve.views.http", "tables_app", "eddy.serve", "tables_app"),
        ("eddy.serve.views.server", "served", "eddy.serve", "served"),
    ],
)
def test_an_old_path_has_the_name_and_says_where_it_is(path: str, name: str, home: str, known: str) -> None:
    module = importlib.import_module(path)
    message = f"eddy.{name} is called {known} now" if path == home else f"from {home} import {known}"
    with pytest.warns(DeprecationWarning, match=message) as warned:
        assert getattr(module, name) is getattr(importlib.import_module(home), known)
    assert [each.filename for each in warned] == [__file__]
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        module.other  # noqa: B018


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        eddy.serve.other  # noqa: B018
    assert {"Views", "views"} & {*eddy.__all__} == set()


def test_old_attributes_of_open_tables_and_their_server_say_the_name() -> None:
    topology, log = eddy.Topology("names"), eddy.open_log()
    topology.table("names", key=eddy.String, value=eddy.String)
    eddy.create_topics(topology, log)
    with eddy.serve.served(endpoint_of("0"), topology, log) as server:
        with pytest.warns(DeprecationWarning, match="are called `tables`"):
            assert server.views is server.tables
        with pytest.warns(DeprecationWarning, match="is called names"):
            assert server.tables.tables == server.tables.names == ["names"]
    log.close()
