"""The paper's estimate of the link: what the last streamed chunk achieved (CacheGen, section 5.3)."""

from cachegen.estimators.base import check_observation


class LastChunkEstimator:
    """The throughput of the last object, its round trip and the server's time included, as the next one's will be."""

    name = "last-chunk"

    def __init__(self) -> None:
        self.bps: float | None = None

    def expect(self, bps: float) -> None:
        """Answer with this until a chunk was streamed."""
        self.bps = bps

    def add_piece(self, size_bytes: int, seconds: float) -> None:
        """Let parts pass: only a whole object counts."""

    def add_transfer(self, size_bytes: int, seconds: float) -> None:
        """Note a streamed chunk; the estimate is this chunk's throughput from now on.

        Raises
        ------
        InvalidInputError
            Less than no bytes, or no time.
        """
        check_observation(size_bytes, seconds)
        self.bps = 8 * size_bytes / seconds
