"""``cachegen evict``."""

import argparse
import re
import sys

from cachegen.commands.base import add_dry_run, add_store
from cachegen.errors import InvalidInputError

HELP = "drop the finest levels of the coldest contexts until a store is within its quota"
DESCRIPTION = (
    "Drop the finest levels of the contexts that were not used for longest, then coarser ones, until the store holds "
    "no more than its quota. Exit status 1 if it still holds more: what no manifest lists is left to `collect`."
)
_OVER_QUOTA = 1
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS["TiB"] = 2**40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    add_store(parser)
    parser.add_argument("--quota", required=True, metavar="SIZE", help="such as 10GB or 512MiB; a bare number is bytes")
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.stores import open_store
    from cachegen.stores.eviction import evict

    quota_bytes = parse_size(options.quota)
    done = evict(open_store(options.store), quota_bytes, dry_run=options.dry_run)
    would = "would free" if options.dry_run else "freed"
    sys.stdout.write(
        f"{would} {done.before_bytes - done.after_bytes:,} of {done.before_bytes:,} bytes: "
        f"{done.dropped_objects} objects of chunks, "
        f"{done.changed_contexts} contexts with fewer levels, {done.removed_contexts} contexts gone\n"
    )
    if done.after_bytes > quota_bytes:
        sys.stdout.write(
            f"{done.after_bytes:,} bytes are left, over the quota of {quota_bytes:,}: claimed by writers, or listed by "
            "no manifest, which `cachegen collect` removes in time\n"
        )
        return _OVER_QUOTA
    return 0


def parse_size(text: str) -> int:
    """Bytes of a size such as ``10GB``, ``1.5 GiB`` or ``4096``.

    Raises
    ------
    InvalidInputError
        Anything else.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) ?([A-Za-z]*)", text)
    if not found or found[2] not in _UNITS:
        raise InvalidInputError(f"{text!r} is no size like 10GB; units are {', '.join(filter(None, _UNITS))}")
    return int(float(found[1]) * _UNITS[found[2]])
