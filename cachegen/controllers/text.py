"""The text-context baseline: fetch nothing but the text and recompute every chunk."""

from cachegen.controllers.base import Decision, LoadState, Recompute, predict_finish_s


class TextController:
    """Recomputes all chunks, whatever the link does."""

    def decide(self, state: LoadState) -> Decision:
        """Return ``Recompute``, always."""
        return Decision(Recompute(), predict_finish_s(state), "text: every chunk is recomputed")
