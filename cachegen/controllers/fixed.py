"""The baseline without adaptation: every chunk in one encoding."""

from collections.abc import Mapping

from cachegen.controllers.base import Action, InOrderController, LoadState, Recompute, Stream


class FixedController(InOrderController):
    """Streams all chunks in the encoding it was made with, whatever the link does."""

    def __init__(self, encoding_name: str) -> None:
        self.encodings = (encoding_name,)

    def choose(self, state: LoadState, finish_s: Mapping[str, float | None]) -> tuple[Action, str]:  # noqa: ARG002 - it predicts nothing
        """Return ``Stream`` of the one encoding; ``Recompute`` for a chunk that the store does not give in it."""
        (name,) = self.encodings
        if name not in state.remaining[0].sizes_bytes:
            return Recompute(), f"fixed: the store does not give this chunk as {name}"
        return Stream(name), f"fixed: every chunk as {name}"
