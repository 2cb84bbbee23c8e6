"""Ways to make a context smaller before any codec: by dropping entries of its cache, or words of its text."""

import re
from dataclasses import dataclass

from testbed.reductions.base import Reduction

# Adding one: a module here with a function `reduce`, and a line. It is imported when it is needed: those parts of a run
# that only know the name do without PyTorch.
REDUCTIONS: dict[str, Reduction] = {
    "h2o": Reduction("testbed.reductions.h2o", has_text=False),
    "lingua": Reduction("testbed.reductions.lingua", has_text=True),
}


@dataclass(frozen=True)
class ReductionSpec:
    """A reduction and how much it keeps, as ``h2o-50`` says it.

    Parameters
    ----------
    kind : str
        Name in ``REDUCTIONS``.
    share : float
        Of the context's tokens, that stays.
    """

    kind: str
    share: float

    @property
    def reduction(self) -> Reduction:
        """How it is done."""
        return REDUCTIONS[self.kind]


def parse_reduction(name: str) -> ReductionSpec | None:
    """Return what ``KIND-PERCENT`` means, percent from 1 to 99; None if the text is of no such form."""
    found = re.fullmatch(r"([a-z0-9]+)-([1-9][0-9]?)", name)
    if found is None or found[1] not in REDUCTIONS:
        return None
    return ReductionSpec(found[1], int(found[2]) / 100)
