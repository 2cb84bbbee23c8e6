"""How the body of an answer arrives: what is missing, how fast it comes, and how it is read in fewer pieces."""

import asyncio

import aiohttp

# A piece costs the event loop as much whatever it holds, and decoding beside it pays for that where processors are few:
# more is left to gather for a moment, where that moment brings less than a full piece and much more is to come.
_GATHER_S = 0.005
_FULL_PIECE_BYTES = 1 << 16
_FAST_BYTES_PER_S = _FULL_PIECE_BYTES / _GATHER_S


class Arrival:
    """Follows one body on a clock of the caller's.

    Parameters
    ----------
    length_bytes : int or None
        Of the body, as its head says.
    now_s : float
        When the head was there.
    """

    def __init__(self, length_bytes: int | None, now_s: float) -> None:
        self._length_bytes, self._begun_s, self._received_bytes = length_bytes, now_s, 0

    def add(self, num_bytes: int) -> None:
        """Count what has arrived."""
        self._received_bytes += num_bytes

    def ends_s(self, now_s: float) -> float | None:
        """When it should be whole at the rate so far; ``None`` where nothing says so."""
        if self._length_bytes is None or not self._received_bytes:
            return None
        missing_share = (self._length_bytes - self._received_bytes) / self._received_bytes
        return now_s + missing_share * (now_s - self._begun_s)

    def may_gather(self, now_s: float) -> bool:
        """Whether what arrives is better read a little later."""
        missing_bytes = (self._length_bytes or 0) - self._received_bytes
        is_slow = self._received_bytes < (now_s - self._begun_s) * _FAST_BYTES_PER_S
        return is_slow and missing_bytes > _FULL_PIECE_BYTES


async def let_gather(response: aiohttp.ClientResponse) -> None:
    """Leave what arrives in the kernel's buffer for a moment.

    Raises
    ------
    aiohttp.ClientConnectionError
        The connection was closed meanwhile.
    """
    # an answer that has been read to its end has no connection any more
    transport = response.connection.transport if response.connection is not None else None
    if transport is None or not transport.is_reading():
        return
    transport.pause_reading()
    try:
        await asyncio.sleep(_GATHER_S)
    finally:
        transport.resume_reading()
    if transport.is_closing():
        raise aiohttp.ClientConnectionError("the connection was closed")
