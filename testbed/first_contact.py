"""Which request to serve, unrecorded, before the first one counts: it makes connections and lets their windows grow."""

from collections.abc import Iterable, Mapping
from typing import Any

from testbed.methods import make_method

# Enough for windows to open, and a few seconds at the link's first rate.
MOST_BYTES = 8_000_000


def contact_method(methods: Iterable[str], context: Mapping[str, Any]) -> str | None:
    """Return the fixed encoding of most bytes that is not too large, else the smallest; None where nothing is streamed.

    Parameters
    ----------
    methods : iterable of str
        Those of the run.
    context : mapping
        As ``Prepared.summary`` describes it: ``stored`` by reduction, each with its ``bytes`` by encoding.
    """
    sizes: dict[str, int] = {}
    for method in map(make_method, methods):
        stored = context["stored"][method.reduction]["bytes"]
        before = f"{method.reduction}+" if method.reduction else ""
        sizes |= {before + encoding: stored[encoding] for encoding in method.encodings}
    fit = [name for name, size in sizes.items() if size <= MOST_BYTES]
    return max(fit, key=sizes.__getitem__) if fit else min(sizes, key=sizes.__getitem__, default=None)
