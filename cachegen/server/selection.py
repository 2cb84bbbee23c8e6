"""Which part of an object a request is to get, if any (RFC 9110, sections 13 and 14)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# one range; more digits than these name no byte of any file
_RANGE = re.compile(r"(\d{0,19})-(\d{0,19})", re.ASCII)


@dataclass(frozen=True)
class Selection:
    """Answer with this status and with bytes ``start`` to ``end`` (exclusive) of the object."""

    status: int
    start: int = 0
    end: int = 0


def select(size_bytes: int, etag: str, headers: Mapping[str, str]) -> Selection:
    """Decide on an object of ``size_bytes`` with the strong tag ``etag`` (in its quotes) by a request's headers.

    Conditions on dates do not hold for objects, which have tags alone. Several ranges at once are refused.
    """
    if "If-Match" in headers and not _is_listed(etag, headers["If-Match"]):
        return Selection(412)
    if "If-None-Match" in headers and _is_listed(etag, headers["If-None-Match"].replace("W/", "")):
        return Selection(304)
    unit, _, asked = headers.get("Range", "").partition("=")
    if unit.strip().lower() != "bytes" or headers.get("If-Range", etag).strip() != etag:
        return Selection(200, 0, size_bytes)
    return _select_range(size_bytes, asked.strip())


def _is_listed(etag: str, tags: str) -> bool:
    return tags.strip() == "*" or etag in [tag.strip() for tag in tags.split(",")]


def _select_range(size_bytes: int, asked: str) -> Selection:
    match = _RANGE.fullmatch(asked)
    if match is None or match.groups() == ("", ""):
        return Selection(416)
    first, last = match.groups()
    if not first:
        start, end = max(0, size_bytes - int(last)), size_bytes
    else:
        start, end = int(first), min(size_bytes, int(last) + 1) if last else size_bytes
    return Selection(206, start, end) if start < end else Selection(416)
