"""A context's last chunk, whose object can be asked for before the index: its name is the context's key."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cachegen.controllers import ChunkOptions, Decision, LoadState, Recompute, Stream

# What is on its way is taken where it is so many encodings coarser than the choice, of those that a controller chooses
# from, or where its additional bytes take as many round trips: to ask again takes one, and the connection that is given
# up with an object has a wide window, which a new one has only after several.
_COARSER_PLACES = 2
_WORTH_ROUND_TRIPS = 2.0


@dataclass(frozen=True)
class EarlyObject:
    """The last chunk's object, asked for while the index was still on its way.

    Parameters
    ----------
    encoding_name : str
        What it was asked for in.
    asked_s : float
        When, in seconds since the request's arrival.
    begun : bool
        Whether any of it has arrived.
    """

    encoding_name: str
    asked_s: float
    begun: bool = False


class LastChunk:
    """Settles what becomes of an object that was asked for early once a controller decides on its chunk.

    Parameters
    ----------
    index : int
        The chunk's place in the context.
    ladder : sequence of str
        Encodings that the controller may choose, finest first.
    early : EarlyObject, optional
        What was asked for; default: nothing.

    Attributes
    ----------
    choice : str or None
        What the controller first chose, whatever was on its way; ``None`` before it did or if it did not stream.
    """

    def __init__(self, index: int, ladder: Sequence[str], early: EarlyObject | None) -> None:
        self._index, self._ladder, self._early = index, tuple(ladder), early
        self._is_settled = False
        self.choice: str | None = None

    def settle(self, decision: Decision, state: LoadState) -> tuple[Decision, EarlyObject | None]:
        """Return the decision with what is on its way in place of what is as good, and that object if so.

        Parameters
        ----------
        decision : Decision
            The controller's; only the first on this chunk is looked at.
        state : LoadState
            What it was made on.
        """
        if decision.index != self._index or self._is_settled:
            return decision, None
        self._is_settled = True
        if isinstance(decision.action, Recompute):
            return decision, None
        self.choice = decision.action.encoding_name
        if self._early is None or not self._is_as_good(self._early.encoding_name, decision, state):
            return decision, None
        reason = f"{decision.reason}; on its way since before the index"
        return replace(decision, action=Stream(self._early.encoding_name), reason=reason), self._early

    def on_its_way(self, remaining: Sequence[ChunkOptions]) -> str | None:
        """Return in which of its encodings the last chunk, if it remains, is on its way; ``None``: in none."""
        if self._early is None or self._is_settled or not remaining or remaining[-1].index != self._index:
            return None
        name = self._early.encoding_name
        return name if name in remaining[-1].sizes_bytes else None

    def give_up(self) -> EarlyObject:
        """Forget the object that was asked for early, and return it."""
        early, self._early = self._early, None
        assert early is not None, "nothing was asked for early"
        return early

    def _is_as_good(self, name: str, decision: Decision, state: LoadState) -> bool:
        choice = self.choice
        sizes_bytes = next(chunk.sizes_bytes for chunk in state.remaining if chunk.index == decision.index)
        if name not in sizes_bytes or name not in self._ladder or choice not in self._ladder:
            return False
        places = self._ladder.index(name) - self._ladder.index(choice)
        if places >= 0:
            return places <= _COARSER_PLACES
        return sizes_bytes[name] - sizes_bytes[choice] <= _spare_bytes(decision, state)


def _spare_bytes(decision: Decision, state: LoadState) -> float:
    """How many more bytes than chosen may come: what the link brings in some round trips, before the deadline."""
    spare_s = _WORTH_ROUND_TRIPS * state.rtt_s
    if decision.planned_finish_s is not None:
        spare_s = max(0.0, min(spare_s, state.deadline_s - decision.planned_finish_s))
    return spare_s * (state.throughput_bps or 0.0) / 8
