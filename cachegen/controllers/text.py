"""The text-context baseline: fetch nothing but the text and recompute every chunk."""

from collections.abc import Mapping

from cachegen.controllers.base import Action, InOrderController, LoadState, Recompute


class TextController(InOrderController):
    """Recomputes all chunks, whatever the link does."""

    def choose(self, state: LoadState, finish_s: Mapping[str, float | None]) -> tuple[Action, str]:  # noqa: ARG002 - it looks at nothing
        """Return ``Recompute``, always."""
        return Recompute(), "text: every chunk is recomputed"
