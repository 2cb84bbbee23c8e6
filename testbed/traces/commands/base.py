"""What a command is, and the flags that several have."""

import argparse
from pathlib import Path
from typing import Protocol

from testbed.traces.importers import IMPORTERS


class Command(Protocol):
    """A module of this package."""

    HELP: str
    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's flags."""

    def run(self, options: argparse.Namespace) -> None:
        """Do it; what cannot be done is raised."""


def add_format(parser: argparse.ArgumentParser) -> None:
    """Declare how a file is read where its content does not say it."""
    parser.add_argument("--format", metavar="NAME", choices=IMPORTERS, help="format (default: recognised by content)")
    parser.add_argument("--series", metavar="ID", help="which link, where a file holds several")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare where a trace is written."""
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="CSV file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
