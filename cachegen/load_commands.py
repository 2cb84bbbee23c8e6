"""What a load's session says to do, what it may have going at once, and who is told of it."""

from dataclasses import dataclass
from typing import Any, Protocol

from cachegen.errors import InvalidInputError


class EventLog(Protocol):
    """Takes what happens during a load, as it happens; called from one thread at a time."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Note ``event``."""
        ...


@dataclass(frozen=True)
class LoadLimits:
    """What a load may have going at once.

    Parameters
    ----------
    in_flight : int
        Objects on their way.
    undecoded : int
        Objects that have arrived and wait for their decode: while there are as many, no further one is asked for. With
        ``in_flight`` this bounds the memory of a load.
    patience_s : float
        How long the store may be silent, and how long after the deadline it is waited for unless it is still sooner
        than recomputing. Then what is missing is recomputed, whatever the controller says. Infinite: never.

    Raises
    ------
    InvalidInputError
        One of them is not positive.
    """

    in_flight: int = 8
    undecoded: int = 3
    patience_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("in_flight", "undecoded", "patience_s"):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"{name} is {getattr(self, name)}, must be positive")


@dataclass(frozen=True)
class Fetch:
    """Ask for the chunk's object; ``early``: it has been asked for before the index, go on with that."""

    index: int
    encoding_name: str
    size_bytes: int
    early: bool = False


@dataclass(frozen=True)
class CancelFetch:
    """Give the chunk's object up; whatever arrives of it from now on is nobody's."""

    index: int


@dataclass(frozen=True)
class Prefill:
    """Recompute the chunk; all chunks before it are in place."""

    index: int


Command = Fetch | CancelFetch | Prefill
