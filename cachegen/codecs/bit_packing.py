"""Symbols of a few bits each, back to back: the first one in the lowest bits of the first byte."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError

# Symbols of b bits fill b bytes by eights.
_GROUP = 8
# Unpacked at a time, so that what is in between stays small beside the symbols.
_BLOCK_GROUPS = 1 << 13

U8 = npt.NDArray[np.uint8]


def packed_bytes(count: int, bits: int) -> int:
    """Bytes of ``count`` symbols; the last one's unused high bits are 0."""
    return -(-count * bits // 8)


def pack_symbols(symbols: U8, bits: int) -> U8:
    """Bytes of symbols that are each below ``2**bits``, 1 to 8 bits."""
    if bits == 8:
        return symbols
    groups = np.zeros((-(-len(symbols) // _GROUP), _GROUP), dtype=np.uint8)
    groups.ravel()[: len(symbols)] = symbols
    words = np.zeros(len(groups), dtype="<u8")
    for i in range(_GROUP):
        words |= groups[:, i].astype(np.uint64) << np.uint64(bits * i)
    return words.view(np.uint8).reshape(-1, _GROUP)[:, :bits].ravel()[: packed_bytes(len(symbols), bits)]


def unpack_symbols(packed: U8, bits: int, count: int) -> U8:
    """Inverse of ``pack_symbols``.

    Raises
    ------
    FormatError
        A bit behind the last symbol is set.
    """
    if bits == 8:
        return packed.copy()
    num_groups = -(-count // _GROUP)
    padded = np.zeros((num_groups, bits), dtype=np.uint8)
    padded.ravel()[: len(packed)] = packed
    symbols = np.empty((num_groups, _GROUP), dtype=np.uint8)
    for first in range(0, num_groups, _BLOCK_GROUPS):
        block = slice(first, min(first + _BLOCK_GROUPS, num_groups))
        words = np.zeros((block.stop - first, _GROUP), dtype=np.uint8)
        words[:, :bits] = padded[block]
        groups = words.view("<u8").ravel()
        for i in range(_GROUP):
            symbols[block, i] = groups >> np.uint64(bits * i) & np.uint64((1 << bits) - 1)
    if symbols.ravel()[count:].any():
        raise FormatError(f"a bit behind the last of {count} symbols is set")
    return symbols.ravel()[:count]
