"""What loads at one host share, in numbers: what each has before it, and who comes when.

Nothing here knows sockets, tensors or a clock: a policy puts loads in order, in a real host and in a simulation alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cachegen.controllers import ChunkOptions


@dataclass(frozen=True)
class Outlook:
    """What a load still has before it.

    Parameters
    ----------
    remaining : tuple of ChunkOptions
        Chunks that are not yet decided, in order.
    encodings : tuple of str
        Those that its controller may choose, finest first.
    compute_s : float
        Seconds of recomputation that are decided and have not begun.
    after_s : float
        Seconds of computation once the context is in place: the question's prefill.
    """

    remaining: tuple[ChunkOptions, ...]
    encodings: tuple[str, ...]
    compute_s: float
    after_s: float


@dataclass(frozen=True)
class QueuedLoad:
    """A load as a policy sees it; times are on the host's clock.

    Parameters
    ----------
    number : int
        In the order in which loads came.
    deadline_s : float
        When its context should be in place.
    flying_bytes : int
        On their way for it.
    throughput_bps : float or None
        Its estimate of what it gets of the link.
    outlook : Outlook
        What it has before it.
    """

    number: int
    deadline_s: float
    flying_bytes: int
    throughput_bps: float | None
    outlook: Outlook


@dataclass(frozen=True)
class HostState:
    """Link and compute lane at a moment.

    Parameters
    ----------
    now_s : float
        The moment, on the host's clock.
    rtt_s : float
        The link's.
    flying_bytes : int
        On their way, for all loads.
    compute_free_s : float
        When the running computation should end; ``now_s`` if none runs.
    """

    now_s: float
    rtt_s: float
    flying_bytes: int
    compute_free_s: float


@dataclass(frozen=True)
class Turn:
    """A load's place in the order.

    Parameters
    ----------
    number : int
        The load's.
    ahead_bytes : int
        That are expected to be asked for before its next object, besides what flies already.
    compute_free_s : float
        When the compute lane should be free for it.
    finest : int
        Place in its ladder of encodings; it should take none finer, for the sake of the loads behind it.
    finish_s : float or None
        When its context should be in place; ``None`` where nothing is known of the link.
    late : bool
        Whether its deadline cannot be held any more, for all that is known.
    """

    number: int
    ahead_bytes: int
    compute_free_s: float
    finest: int
    finish_s: float | None
    late: bool


class SharingPolicy(Protocol):
    """Divides the link and the compute lane among loads."""

    one_queue: bool
    """Whether the link is one queue for all loads, with one estimate of its rate. Else each load fetches when it likes,
    estimates its own share, and the compute lane serves in the order of asking."""

    def arrange(self, loads: Sequence[QueuedLoad], host: HostState) -> list[Turn]:
        """Return the turns of all loads, the most urgent first."""
        ...
