"""``cachegen collect``."""

import argparse
import re
import sys

from cachegen.commands.base import add_dry_run, add_store
from cachegen.errors import InvalidInputError

HELP = "remove what interrupted writers left in a store"
DESCRIPTION = (
    "Remove the objects of a store that no manifest lists and that have a certain age: what writers left that died."
)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    add_store(parser)
    parser.add_argument(
        "--older-than",
        default="1h",
        metavar="AGE",
        help="such as 90s, 10m, 1h or 7d, from 1m on; longer than a writer takes for a context (default: %(default)s)",
    )
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.stores import open_store
    from cachegen.stores.garbage import collect_garbage

    done = collect_garbage(open_store(options.store), parse_age_s(options.older_than), dry_run=options.dry_run)
    would = "would remove" if options.dry_run else "removed"
    sys.stdout.write(f"{would} {done.removed_objects} objects of {done.removed_bytes:,} bytes\n")
    return 0


def parse_age_s(text: str) -> int:
    """Seconds of an age such as ``1h``.

    Raises
    ------
    InvalidInputError
        Anything else.
    """
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if not found:
        raise InvalidInputError(f"{text!r} is no age like 90s, 10m, 1h or 7d")
    return int(found[1]) * _UNITS_S[found[2]]
