"""The baseline without adaptation: every chunk in one encoding."""

from cachegen.controllers.base import Decision, LoadState, Stream, predict_finish_s
from cachegen.errors import InvalidInputError


class FixedController:
    """Streams all chunks in the encoding it was made with, whatever the link does."""

    def __init__(self, encoding_name: str) -> None:
        self._encoding_name = encoding_name

    def decide(self, state: LoadState) -> Decision:
        """Return ``Stream`` of the one encoding.

        Raises
        ------
        InvalidInputError
            The chunks are not stored in that encoding.
        """
        finish_s = predict_finish_s(state)
        if self._encoding_name not in state.remaining[0].sizes_bytes:
            raise InvalidInputError(f"chunk {state.next_chunk} is not stored as {self._encoding_name}")
        return Decision(Stream(self._encoding_name), finish_s, f"fixed: every chunk as {self._encoding_name}")
