"""`eddy describe`: the topology as text or as a picture."""

import click

from eddy.cli.load import load
from eddy.cli.options import topology_argument

__all__ = ["command"]


@click.command("describe", short_help="Print the steps of a topology.")
@topology_argument
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart instead, for Markdown or mermaid.live.")
def command(program: str, mermaid: bool) -> None:
    """Print the steps of a topology, with their stores and internal topics.

    It needs no log and runs nothing. FILE is a Python file, or a dotted module, that defines a Topology; NAME selects
    one of several.

    \b
    Example:
      eddy describe family.py
    """
    topology = load(program).topology
    click.echo(topology.mermaid() if mermaid else topology.describe(), nl=False)
    if mermaid:
        click.echo()
