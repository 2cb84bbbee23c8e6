"""Where each chunk of a load is."""

from dataclasses import dataclass
from enum import Enum, auto

from cachegen.controllers import ChunkOptions, Transfer


class Place(Enum):
    """Where a chunk is."""

    UNDECIDED = auto()
    IN_FLIGHT = auto()
    UNDECODED = auto()
    TO_RECOMPUTE = auto()
    RECOMPUTING = auto()
    READY = auto()


@dataclass
class ChunkProgress:
    """One chunk of a load under way.

    Parameters
    ----------
    options : ChunkOptions
        What can be done with it; what has failed is no longer among that.
    place : Place
        Where it is.
    source : str
        What was decided: an encoding's name or ``recompute``.
    started_s, first_byte_s : float
        Of its last fetch; ``None`` before the first byte.
    received_bytes : int
        Of that fetch.
    failures, cancellations : int
        How often it was damaged or broke off, and how often it was given up.
    error : str
        What went wrong last.
    """

    options: ChunkOptions
    place: Place = Place.UNDECIDED
    source: str = ""
    started_s: float = 0.0
    first_byte_s: float | None = None
    received_bytes: int = 0
    failures: int = 0
    cancellations: int = 0
    error: str = ""

    @property
    def decode_s(self) -> float:
        """Expected seconds to decode it in what it was decided to come in."""
        return self.options.decode_s.get(self.source, 0.0)

    def transfer(self, options: ChunkOptions) -> Transfer:
        """Its object on its way, as a controller sees it, with what could be done instead."""
        size_bytes = self.options.sizes_bytes[self.source]
        return Transfer(self.options.index, self.source, size_bytes, self.received_bytes, options)
