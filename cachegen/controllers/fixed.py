"""The baseline without adaptation: every chunk in one encoding."""

from collections.abc import Mapping

from cachegen.controllers.base import (
    Action,
    Decision,
    InOrderController,
    LoadState,
    Recompute,
    Stream,
    predict_finish_s,
)
from cachegen.link_use import LinkKnowledge


class FixedController(InOrderController):
    """Streams all chunks in the encoding it was made with, whatever the link does."""

    def __init__(self, encoding_name: str) -> None:
        self.encodings = (encoding_name,)

    def before_index(self, known: LinkKnowledge | None) -> str | None:  # noqa: ARG002 - whatever the link does
        """Return the one encoding."""
        return self.encodings[0]

    def decide(self, state: LoadState) -> Decision | None:
        """Decide on the first remaining chunk, or before it on the last one where that is on its way already."""
        (name,) = self.encodings
        if state.early != name or not state.may_fetch:
            return super().decide(state)
        finish_s = predict_finish_s(state)
        return Decision(state.remaining[-1].index, Stream(name), finish_s, f"fixed: as {name}", finish_s.get(name))

    def choose(self, state: LoadState, finish_s: Mapping[str, float | None]) -> tuple[Action, str]:  # noqa: ARG002 - it predicts nothing
        """Return ``Stream`` of the one encoding; ``Recompute`` for a chunk that the store does not give in it."""
        (name,) = self.encodings
        if name not in state.remaining[0].sizes_bytes:
            return Recompute(), f"fixed: the store does not give this chunk as {name}"
        return Stream(name), f"fixed: every chunk as {name}"
