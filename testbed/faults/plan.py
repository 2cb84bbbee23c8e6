"""Plans of faults: ``kill-server@1.5s+2s,corrupt:5%@0s`` is read, checked and written here."""

import itertools
import re
from dataclasses import dataclass

from cachegen import InvalidInputError, UnknownNameError
from testbed.faults import FAULTS, Fault

DEFAULT_SHARE = 0.01
_SECONDS = r"(\d{1,6}(?:\.\d{1,6})?)s"
_SPEC = re.compile(rf"(?P<kind>[a-z-]+)(?::(?P<percent>\d{{1,3}}(?:\.\d+)?)%)?@{_SECONDS}(?:\+{_SECONDS})?")


@dataclass(frozen=True)
class PlannedFault:
    """One fault of a plan.

    Parameters
    ----------
    text : str
        As it was written.
    kind : str
        In ``FAULTS``.
    start_s : float
        From the request's arrival.
    duration_s : float or None
        ``None``: until the request ends.
    share : float
        Of the chunks' objects, for kinds that hit objects.
    """

    text: str
    kind: str
    start_s: float
    duration_s: float | None
    share: float = DEFAULT_SHARE

    def overlaps(self, other: "PlannedFault") -> bool:
        """Whether both go on at any one time."""
        return all(
            one.duration_s is None or later.start_s <= one.start_s + one.duration_s
            for one, later in ((self, other), (other, self))
        )

    def make(self) -> Fault:
        """Return the fault, new."""
        return FAULTS[self.kind](self.share)


def parse_faults(plan: str) -> tuple[PlannedFault, ...]:
    """Return the faults of a plan, in order of their begin; an empty plan has none.

    Raises
    ------
    InvalidInputError
        A part that is not KIND[:SHARE%]@START[+DURATION], times in seconds with their ``s``.
    UnknownNameError
        There is no such kind.
    """
    faults = [_parse(part.strip()) for part in plan.split(",")] if plan.strip() else []
    for full, writing in itertools.product(faults, faults):
        if full.kind == "disk-full" and writing.kind.startswith("foreign-") and full.overlaps(writing):
            raise InvalidInputError(
                f"faults: {writing.text!r} writes to the disk that {full.text!r} fills at the same time"
            )
    return tuple(sorted(faults, key=lambda fault: fault.start_s))


def _parse(text: str) -> PlannedFault:
    match = _SPEC.fullmatch(text)
    if match is None:
        raise InvalidInputError(
            f"faults: {text!r} is not KIND@START+DURATION, like kill-server@1.5s+2s or corrupt:5%@0s"
        )
    kind, percent, start, duration = match["kind"], match["percent"], match[3], match[4]
    if kind not in FAULTS:
        raise UnknownNameError(f"faults: no fault {kind!r}; there are {', '.join(FAULTS)}")
    share = DEFAULT_SHARE if percent is None else float(percent) / 100
    if percent is not None and not FAULTS[kind].hits_objects:
        raise InvalidInputError(f"faults: {text!r}: {kind} hits no share of objects")
    if not 0 < share <= 1:
        raise InvalidInputError(f"faults: {text!r}: a share is above 0 and at most 100 %")
    if duration is not None and not float(duration) > 0:
        raise InvalidInputError(f"faults: {text!r}: a duration must be positive")
    return PlannedFault(text, kind, float(start), None if duration is None else float(duration), share)
