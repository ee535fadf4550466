"""FILE[:NAME]: what is found, and what a user is told where nothing is."""

import pathlib

import pytest

from tests.cli.conftest import Command

TWO = "import eddy\norders = eddy.Topology('orders')\nusers = eddy.Topology('users')\n"


def test_file_module_and_name_lead_to_the_topology(run: Command, folder: pathlib.Path) -> None:
    described = run("describe", "family.py").stdout
    assert (
        "Processor: ancestors (stores: [ancestors, ancestors-held, ancestors-reached], topic: family-ancestors-loop)"
        in described
    )
    (folder / "package_of_a_test").mkdir()
    (folder / "family.py").rename(folder / "package_of_a_test" / "tree.py")
    assert run("describe", "package_of_a_test.tree").stdout == described
    assert run("describe", "package_of_a_test/tree.py:topology").stdout == described
    assert run("describe", "package_of_a_test/tree.py", "--mermaid").stdout.startswith("flowchart TD\n")


def test_aliases_of_one_topology_are_one(run: Command, folder: pathlib.Path) -> None:
    (folder / "alias.py").write_text("import eddy\na = b = eddy.Topology('one')\na.stream('in')\n")
    run("describe", "alias.py")


def test_several_queries_are_refused_only_where_they_are_served(run: Command, folder: pathlib.Path) -> None:
    (folder / "q.py").write_text(
        "import eddy\ntopology = eddy.Topology('q')\ntopology.table('in')\na, b = eddy.Queries(), eddy.Queries()\n"
    )
    run("describe", "q.py")
    told = run("serve", "q.py", "--data", "data", "--http", "0", status=2).stderr
    assert "'q.py' defines 2 Queries; a single one is needed." in told


def test_file_may_import_its_neighbours(run: Command, folder: pathlib.Path) -> None:
    (folder / "neighbour_of_a_test.py").write_text("NAME = 'near'\n")
    (folder / "app.py").write_text(
        "import eddy\nfrom neighbour_of_a_test import NAME\ntopology = eddy.Topology(NAME)\ntopology.stream('in')\n"
    )
    run("describe", "app.py")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("gone.py", "there is no file 'gone.py'"),
        ("gone_module", "there is no file and no module 'gone_module'"),
        ("two.py", "'two.py' defines 2 topologies: orders, users; one has to be named. Write: two.py:orders"),
        ("two.py:carts", "'two.py' has no Topology called 'carts'; its topologies are: orders, users."),
        ("none.py", "'none.py' defines no Topology; one is needed. Write: topology = eddy.Topology("),
        ("notes.txt", "'notes.txt' is not a Python file"),
    ],
)
def test_what_is_not_found_is_a_mistake_in_use(run: Command, folder: pathlib.Path, program: str, said: str) -> None:
    (folder / "two.py").write_text(TWO)
    (folder / "none.py").write_text("x = 1\n")
    (folder / "notes.txt").write_text("x = 1\n")
    assert said in run("describe", program, status=2).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import eddy\nfoo()\n", "NameError: name 'foo' is not defined\n  app.py:2: foo()\n"),
        (
            "import eddy\neddy.Topology('x').stream('in').mapValues(str)\n",
            "AttributeError: 'KStream' object has no attribute 'mapValues'. Did you mean 'map_values'?\n  app.py:2: ",
        ),
        ("import eddy\neddy.JSON()\n", "module 'eddy' has no attribute 'JSON'. Did you mean 'Json'?\n"),
        ("import eddy\neddy.gone()\n", "AttributeError: module 'eddy' has no attribute 'gone'\n"),
        ("raise AttributeError('gone')\n", "AttributeError: gone\n"),
        ("def f(:\n", "SyntaxError: invalid syntax\n  app.py:1: def f(:\n"),
        ("import json\njson.loads('{')\n", "\n  app.py:2: json.loads('{')\n"),
        ("import gone_module\n", "No module named 'gone_module'\n  app.py:1: import gone_module\n"),
        ("raise SystemExit('bye')\n", "SystemExit: bye\n  app.py:1: raise SystemExit('bye')\n"),
        ("import eddy\neddy.Topology('x y')\n", "topology 'x y': not a name"),
        ("import eddy\neddy.Topology('x y')\n", "\n  app.py:2: eddy.Topology('x y')\n"),
    ],
)
def test_mistake_in_the_file_is_told_with_its_line(run: Command, folder: pathlib.Path, text: str, said: str) -> None:
    (folder / "app.py").write_text(text)
    told = run("describe", "app.py", status=78).stderr
    assert told.startswith("error [TOPOLOGY]: ")
    assert said in told
    assert "Traceback" not in told
