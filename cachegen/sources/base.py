"""What a loader reads objects from."""

from collections.abc import Callable
from typing import Protocol


class Source(Protocol):
    """Reads whole objects; one instance serves one event loop, with several fetches in flight."""

    received_bytes: int
    """Bytes of objects that have arrived so far, those of broken and of cancelled transfers included."""

    async def fetch(
        self,
        name: str,
        max_bytes: int,
        on_first_byte: Callable[[], None],
        *,
        on_bytes: Callable[[int], None] | None = None,
    ) -> bytes:
        """Return the object ``name``, of ``max_bytes`` at most.

        Cancelling one fetch leaves the others alone.

        Parameters
        ----------
        on_first_byte
            Called once, when the answer begins to arrive.
        on_bytes
            Called with the size of each piece, in bytes, as it arrives.

        Raises
        ------
        InvalidInputError
            ``name`` is not an object name.
        ObjectNotFoundError
            There is no such object.
        StoreUnavailableError
            No answer, a broken connection, silence for too long, or more than ``max_bytes``.
        """
        ...

    async def close(self) -> None:
        """Give up connections."""
        ...
