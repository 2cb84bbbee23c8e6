"""What one request receives over a source that it shares with others."""

from collections.abc import Callable

from cachegen import Source


class CountedSource:
    """Counts the bytes of one request's fetches; what arrives of a cancelled one before it is read is not seen.

    Parameters
    ----------
    source : Source
        Shared, and closed by whoever opened it.
    """

    def __init__(self, source: Source) -> None:
        self.received_bytes = 0
        self._source = source

    async def fetch(
        self,
        name: str,
        max_bytes: int,
        on_first_byte: Callable[[], None],
        *,
        on_bytes: Callable[[int], None] | None = None,
    ) -> bytes:
        """See :meth:`cachegen.Source.fetch`."""

        def count(num_bytes: int) -> None:
            self.received_bytes += num_bytes
            if on_bytes is not None:
                on_bytes(num_bytes)

        return await self._source.fetch(name, max_bytes, on_first_byte, on_bytes=count)

    async def close(self) -> None:
        """Leave the source to the others."""
