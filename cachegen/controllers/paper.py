"""CacheGen's own adaptation rule, Algorithm 1 of the paper (SIGCOMM'24, section 5.3 and appendix C.1).

Before each chunk, with the time that remains until the deadline:

1. If recomputing *all* remaining chunks fits, recompute this one: no encoding has a better quality.
2. Else stream it in the finest encoding in which all remaining chunks fit, if the link keeps the throughput
   that it had for the last streamed chunk.
3. Else stream it in the coarsest encoding.

Exactly in time counts as fitting. Before the first chunk was streamed no throughput is known; rule 2 then
takes the medium encoding, the coarser one of two in the middle. Once no time remains rule 3 holds, whether a
throughput is known or not. With a throughput of zero nothing fits.
"""

from collections.abc import Mapping, Sequence

from cachegen.controllers.base import RECOMPUTE, Action, Decision, InOrderController, LoadState, Recompute, Stream
from cachegen.errors import InvalidInputError


class PaperController(InOrderController):
    """Algorithm 1 over a ladder of encodings.

    Parameters
    ----------
    encodings
        Names of the encodings to choose from, finest first; at least one. Others that a chunk may be stored
        in are left alone.

    Raises
    ------
    InvalidInputError
        The ladder is empty.
    """

    def __init__(self, encodings: Sequence[str]) -> None:
        if not encodings:
            raise InvalidInputError("the paper's controller needs at least one encoding to choose from")
        self.encodings = tuple(encodings)

    def decide(self, state: LoadState) -> Decision | None:
        """Decide on the first remaining chunk, once the very first object has shown what the link does."""
        if state.in_flight and state.throughput_bps is None:
            return None
        decision = super().decide(state)
        if decision is not None and isinstance(decision.action, Recompute) and state.in_flight:
            # recomputing begins when what is on its way is in place, and takes from the time that is left by then:
            # whether it fits is seen when the rule's own loop would look
            can_stream = any(name in state.remaining[0].sizes_bytes for name in self.encodings)
            return None if can_stream else decision
        return decision

    def choose(self, state: LoadState, finish_s: Mapping[str, float | None]) -> tuple[Action, str]:
        """Apply the three rules to the first remaining chunk, with the encodings that the store gives it in."""

        def fits(option: str) -> bool:
            predicted_s = finish_s.get(option)
            return predicted_s is not None and predicted_s <= state.deadline_s

        ladder = [name for name in self.encodings if name in state.remaining[0].sizes_bytes]
        if fits(RECOMPUTE):
            return Recompute(), "recomputing all remaining chunks fits"
        if not ladder:
            return Recompute(), "the store does not give this chunk"
        if state.remaining_s <= 0:
            return Stream(ladder[-1]), "no time remains: coarsest"
        if state.throughput_bps is None:
            return Stream(ladder[len(ladder) // 2]), "no throughput measured yet: medium"
        for name in ladder:
            if fits(name):
                return Stream(name), "the finest in which all remaining chunks fit"
        return Stream(ladder[-1]), "nothing fits: coarsest"
