"""``list``: the traces that come with the project, and the formats that can be read."""

import argparse
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from testbed.trace import load_trace, trace_names
from testbed.traces.importers import IMPORTERS
from testbed.traces.models import MODELS
from testbed.traces.statistics import describe

HELP = "the traces that come with the project, and the formats that can be read"
DESCRIPTION = "List the traces that come with the project, and the formats that can be read."
# Wide enough for both tables where nobody's window says how wide it is.
_FILE_WIDTH = 200


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""


def run(_options: argparse.Namespace) -> None:
    """See ``Command``."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    # written by us: rich would end the program in its own way where the reader has seen enough
    with console.capture() as shown:
        console.print(_traces())
        console.print(_formats())
    sys.stdout.write(shown.get())


def _traces() -> Table:
    table = Table("trace", box=box.SIMPLE)
    for heading in ("mean", "min", "max", "outage %", "s"):
        table.add_column(heading, justify="right")
    table.add_column("Mbit/s of which link")
    table.add_column("source of its parameters")
    for name in trace_names():
        found = describe(load_trace(name))
        rates = (f"{value:.4g}" for value in (found.mean_mbps, found.min_mbps, found.max_mbps))
        model = MODELS[name]
        table.add_row(
            name, *rates, f"{100 * found.outage_share:.2g}", f"{found.duration_s:g}", model.summary, model.source
        )
    return table


def _formats() -> Table:
    table = Table("format", "what a file holds", "mean of the trace", "--series", box=box.SIMPLE)
    for name, importer in IMPORTERS.items():
        table.add_row(name, importer.summary, importer.mean, importer.series or "")
    return table
