"""`eddy trace --since`: a running server tells what has moved, and a log alone is refused."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.client.site import Site
from tests.topology.programs import family

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = str(EXAMPLES / "family.py")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        made = Site(stack, family())
        made.token = tmp_path / "token"
        made.token.write_text("0123456789abcdef")
        yield made


def test_server_tells_what_has_moved_since_the_earliest_version(run: Command, site: Site) -> None:
    url = site.serve()
    site.write({"leaf": "twig", "twig": "tree"})
    since = site.tables.version.token
    site.write({"leaf": "tree"})
    given = ["trace", PROGRAM, "descendants", "tree", "--server", url, "--http-token-file", str(site.token)]
    told = run(*given, "--since", since).stdout
    assert "\n  tree 2 = 2 direct\nsince version " in told
    assert ": 2 → 2\n" in told
    assert '  twig of tree 1 → 0 (-1)\n    nodes "leaf": "twig" → "tree", by nodes-0@' in told
    assert '"moved":{"since":' in run(*given, "--since", "earliest", "--json").stdout
    assert "since version" not in run(*given).stdout
    refused = run(*given, "--since", "gqFvgKFpgA", status=1)
    assert "since: the rows of version gqFvgKFpgA are not kept here; one from " in refused.stderr


def test_requests_that_no_server_can_answer_say_what_is_needed(run: Command, site: Site) -> None:
    url = site.serve()
    asked = ["trace", PROGRAM, "descendants", "tree"]
    assert "the topics of tables are compacted" in run(*asked, "--since", "gqFvgKFpgA", status=2).stderr
    told = run(*asked, "--http-token-file", str(site.token), status=2).stderr
    assert "--http-token-file is for a server; name it: --server" in told
    assert "401 a token is needed" in run(*asked, "--server", url, status=1).stderr
    assert (
        "no address; one such as http://localhost:8080" in run(*asked, "--server", "localhost:8080", status=78).stderr
    )
    for option in (["--limit", "3"], ["--max-rows", "3"], ["--bootstrap", "nohost:1"], ["--set", "a=b"]):
        told = run(*asked, "--server", url, *option, status=2).stderr
        assert f"{option[0]} is for a trace of the log; leave it out beside --server" in told
    signed = [*asked, "--server", url, "--http-token-file", str(site.token)]
    assert "since" in run(*signed, "--since", "", status=1).stderr
    other = "it serves the application 'family', and FILE has 'permissions'"
    assert other in run(signed[0], str(EXAMPLES / "permissions.py"), *signed[2:], status=1).stderr
    assert "--at-least waits" in run(*asked, "--server", url, "--at-least", "x", status=2).stderr
    site.serving.close()
    assert "no answer: " in run(*asked, "--server", url, status=1).stderr
