"""`eddy serve` and `eddy get --watch` as processes."""

import json
import signal
from collections.abc import Callable
from typing import Any

from eddy.connectors.broker import free_port
from tests.children import Child
from tests.cli.conftest import Command, Start
from tests.serve.conftest import fetch


def wait_for_page(server: Child, port: int, path: str, holds: Callable[[Any], bool] = lambda page: True) -> None:
    """Wait until a page is answered with status 200 and has what is wanted. Fails where the server ends before."""

    def shown() -> bool:
        page = fetch(port, path)
        return page.status == 200 and holds(page.json)

    server.wait_for(shown, path, pause_s=0.05)


def test_tables_are_served_shown_and_watched(start: Start, run: Command) -> None:
    run("produce", "nodes", stdin="bob\tann\ncid\tbob\n")
    run("run", "family.py", "--until-idle")
    rows = [json.loads(line) for line in run("get", "family.py", "descendants").stdout.splitlines()]
    assert rows == [{"key": "ann", "value": 2}, {"key": "bob", "value": 1}]
    assert json.loads(run("get", "family.py", "nodes", "cid").stdout) == {"key": "cid", "value": "bob"}
    missing = run("get", "family.py", "nodes", "nobody", status=1)
    assert (missing.stdout, missing.stderr) == ("", "table 'nodes': there is no row with the key 'nobody'.\n")
    traced = run("trace", "family.py", "descendants", "ann").stdout
    assert "  ann 2 = 1 direct + bob 1\n" in traced
    assert traced.endswith("served at this version: 2, as computed here from the inputs\n")
    opened = run("trace", "family.py", "descendants", "ann", "--open", "bob", "--open", "direct").stdout
    assert "  ann 2 = 1 direct + bob 1\n    bob 1 = 1 direct\n      direct 1 = cid 1\n" in opened
    refused = run("trace", "family.py", "descendants", "ann", "--open", "tom", status=1)
    assert "are made of no count or sum with a part 'tom'" in refused.stderr
    rows = run("trace", "family.py", "ancestors", "ann").stdout
    assert '  ⋈ "bob" = "ann"   nodes (row of topic nodes)' in rows
    none = run("trace", "family.py", "descendants", "cid").stdout
    assert 'descendants has no row with the key "cid":\n' in none
    assert "  map after 'nodes' makes this key of none of its 2 rows\n" in none
    unknown = run("trace", "family.py", "sons", "ann", status=1)
    assert "no step 'sons'; a table (descendants, nodes), or another step" in unknown.stderr

    server = start("serve", "family.py", "--http", "0")
    port = int(server.wait_to_say(r"http://127\.0\.0\.1:(\d+)")[1])
    wait_for_page(server, port, "/readyz")
    assert fetch(port, "/v1/tables/descendants/ann").json["value"] == 2
    watch = start("get", "family.py", "descendants", "--prefix", "a", "--watch")
    assert json.loads(watch.next_line()) == {"key": "ann", "value": 2}
    run("produce", "nodes", stdin="dan\tbob\n")
    run("run", "family.py", "--until-idle")
    assert json.loads(watch.next_line()) == {"key": "ann", "value": 3}
    wait_for_page(server, port, "/v1/tables/descendants/ann", lambda row: row["value"] == 3)
    server.signal(signal.SIGTERM)
    server.ends()


def test_trace_names_a_cycle_that_is_held_and_explains_the_other_keys(run: Command) -> None:
    run("produce", "nodes", stdin="bob\tann\nann\tbob\ndan\teve\neve\tfay\nivy\tann\n")
    run("run", "family.py", "--until-idle", status=3)
    held = run("trace", "family.py", "descendants", "ann").stdout
    assert "\n  recursion 'ancestors' holds it: the path ann → bob → ann is a cycle. Mend the data" in held
    whole = run("trace", "family.py", "descendants", "fay").stdout
    assert "  fay 2 = 1 direct + eve 1\n" in whole
    assert "recursion 'ancestors' holds 2 keys: the path ann → bob → ann is a cycle\n" in whole
    assert whole.endswith("served at this version: 2, as computed here from the inputs\n")


def test_a_server_that_was_killed_goes_on_where_it_was(start: Start, run: Command) -> None:
    lines = [f"n{n}\tn{n // 2}\n" for n in range(2, 3_000)]
    run("produce", "nodes", stdin="".join(lines[:1_500]))
    run("run", "family.py", "--until-idle")
    for attempt, part in enumerate((lines[1_500:2_000], lines[2_000:2_500], lines[2_500:])):
        server = start("serve", "family.py", "--http", "0")
        port = int(server.wait_to_say(r"http://127\.0\.0\.1:(\d+)")[1])
        run("produce", "nodes", stdin="".join(part))
        worker = start("run", "family.py", "--until-idle")
        if attempt < 2:
            worker.kill()
            server.kill()
            continue
        worker.ends()
        wait_for_page(server, port, "/v1/tables/descendants/n1", lambda row: row["exact"] and row.get("value") == 2_998)
        rows = fetch(port, "/v1/tables/nodes?limit=10000").json
        assert {row["key"]: row["value"] for row in rows["rows"]} == dict(line.split() for line in lines)
        assert rows["exact"]


def test_server_waits_for_brokers_that_are_away_until_it_is_stopped(start: Start) -> None:
    server = start("serve", "family.py", "--http", "0", "--bootstrap", f"127.0.0.1:{free_port()}")
    server.wait_to_say("not started yet; trying for 300 s")
    server.signal(signal.SIGTERM)
    assert "stopped by SIGTERM" in server.ends().errors


def test_certificate_and_key_belong_together(run: Command) -> None:
    refused = run("serve", "family.py", "--tls-cert", "cert.pem", status=2)
    assert "--tls-cert and --tls-key belong together" in refused.stderr
