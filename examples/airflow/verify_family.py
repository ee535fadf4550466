"""A DAG of Airflow 3 that verifies an application every night.

    equal          the task succeeds
    different      the task fails, with the parts that differ
    undetermined   the task succeeds, and a message with the reasons goes to a webhook
    no verdict     the task fails: the command was killed, or used wrongly

Two variables of Airflow set it up:

    eddy_verify      the command, as in a shell: eddy verify /srv/family/family.py --bootstrap broker:9092
    eddy_alert_url   the webhook; it gets {"text": …} as JSON, as Slack and Mattermost take it
"""

import datetime
import json
import shlex
import subprocess
import urllib.request
from typing import Any

from airflow.sdk import Variable, dag, task  # type: ignore[import-not-found]


class DifferentError(Exception):
    """States or outputs are not the results of the inputs."""


class NoVerdictError(Exception):
    """The command ended without a verdict."""


def verdict_of(command: str) -> dict[str, Any]:
    """Run a verification; return its document. Raises: NoVerdictError if it has printed none."""
    ended = subprocess.run([*shlex.split(command), "--format", "json"], capture_output=True, text=True)
    print(ended.stderr)  # the lines for people, in the log of the task
    try:
        document: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        raise NoVerdictError(f"{command}: it ended with {ended.returncode}, and without a verdict") from None
    return document


def summary(document: dict[str, Any]) -> str:
    """The verdict in a few lines: what differs, with its first key, and all reasons."""
    lines = [f"{document['application']}: {document['verdict']}"]
    for part in document["compared"]:
        if part["differing"]:
            first = part["samples"][0]
            lines.append(f"{part['kind']} {part['name']}: {part['differing']} of {part['rows']} differ, as {first}")
    lines += [f"{why['kind']} {why['name']}: {why['reason']}" for why in document["undetermined"]]
    if document["error"]:
        lines.append(document["error"]["message"])
    return "\n".join(lines)


def alert(url: str, text: str) -> None:
    """Send a message to a webhook. Raises: OSError if it does not take it."""
    data = json.dumps({"text": text}).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30):
        pass


@dag(
    schedule="0 3 * * *",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    max_active_runs=1,
)
def verify_family() -> None:
    """One task: `eddy verify`, at 3 every night."""

    @task
    def verify() -> str:
        document = verdict_of(Variable.get("eddy_verify"))
        if document["verdict"] == "different":
            raise DifferentError(summary(document))
        if document["verdict"] == "undetermined":
            alert(Variable.get("eddy_alert_url"), summary(document))
        return str(document["verdict"])

    verify()


verify_family()
