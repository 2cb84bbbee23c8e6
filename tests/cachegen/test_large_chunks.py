"""More than 2**31 elements: strides that span them, and kernels and a chunk that hold them.

The kernels run on broadcast arrays, of which every element is visited and few exist. ``CACHEGEN_LARGE_TESTS=1`` makes
them as large as their names say, which takes minutes and 9 GiB; without it they run small, so that they stay runnable.
"""

import os

import numpy as np
import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk, profile_of, same_bits
from numba import njit
from numpy.lib.stride_tricks import as_strided

from cachegen.encoding import ENCODINGS, Encoding
from cachegen.kernels import numba_prediction, numba_quantize, numba_rans, numba_uniform
from cachegen.kernels.base import STATE_LOW
from cachegen.kernels.stream_faults import SOUND
from cachegen.kernels.tables import FrequencyTables
from cachegen.pipeline import decode_chunk, encode_chunk

LARGE = os.environ.get("CACHEGEN_LARGE_TESTS") == "1"
ROWS, CHANNELS = 2, 2
# rows * channels * tokens = 2**31 + 40 where large
TOKENS = (1 << 29) + 10 if LARGE else 1010


def apart(kernel):
    """The kernel compiled for these arrays, without a trace in the dispatcher that the codecs use."""
    return njit(cache=True, nogil=True)(kernel.py_func)


def repeated(values, shape):
    """An array in which ``values`` repeat along its axes of length 1; it can be written where nobody reads twice."""
    strides = [0 if size == 1 else stride for size, stride in zip(values.shape, values.strides, strict=True)]
    return as_strided(values, shape, strides)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_elements_more_than_two_to_the_31_apart_are_found_by_every_codec(encoding):
    """LMCache #4920: offsets did not fit in 32 bits. Reserves 4 GiB of addresses and touches a few pages."""
    kv = make_chunk(layers=2, tokens=11)
    gap = (1 << 31) + 64
    storage = torch.from_numpy(np.empty(gap + kv[0].numel(), dtype=np.uint16)).view(torch.bfloat16)
    spread = storage.as_strided(kv.shape, (gap, *kv.stride()[1:]))
    spread.copy_(kv)
    profile = profile_of(kv)

    assert encode_chunk(spread, encoding, identity_of(profile), profile) == encode_chunk(
        kv, encoding, identity_of(profile), profile
    )


def test_streams_of_more_than_two_to_the_31_symbols_come_back():
    """LMCache #4920, in the entropy coder."""
    # the likeliest value of a channel, and so cheap that few words are written
    values = np.array([[3, -5], [0, 127]], dtype=np.int32)[:, :, None]
    first = (values[:, :, 0] + 127).astype(np.uint8)
    tables = FrequencyTables(first, np.ones((ROWS, CHANNELS), np.uint8), np.full(ROWS * CHANNELS, 4095, np.uint16))
    states = np.full((ROWS, 32), STATE_LOW, dtype=np.uint32)
    symbols = repeated(values, (ROWS, CHANNELS, TOKENS))
    runs = (tables.first, tables.frequencies, tables.starts)
    words = np.empty((ROWS, CHANNELS * TOKENS), dtype=np.uint16)
    escapes = np.empty((ROWS, CHANNELS * TOKENS), dtype=np.int32)
    encode = apart(numba_rans._encode_kernel)
    counts = [encode(row, symbols, *runs, states[row], words[row], escapes[row]) for row in range(ROWS)]

    assert [num_escapes for _, num_escapes in counts] == [0] * ROWS
    assert max(num_words for num_words, _ in counts) < TOKENS / 1000 + 1
    written = np.concatenate([words[row, words.shape[1] - counts[row][0] :] for row in range(ROWS)])
    word_starts = np.cumsum([0] + [num_words for num_words, _ in counts])
    back = np.empty((ROWS, CHANNELS, TOKENS), dtype=np.int16)  # flat for the kernel, so no repetition will do
    _, reason = apart(numba_rans._decode_kernel)(
        0,
        ROWS,
        states,
        word_starts,
        written if len(written) else np.zeros(1, dtype=np.uint16),
        np.zeros(ROWS + 1, dtype=np.int64),
        np.empty(0, dtype=np.int32),
        *runs,
        TOKENS,
        TOKENS,
        back.reshape(-1),
    )
    assert reason == SOUND
    for found, value in zip(back.reshape(-1, TOKENS), values.reshape(-1), strict=True):
        assert found.min() == found.max() == value

    histogram = np.zeros((ROWS, CHANNELS, 256), dtype=np.uint32)
    apart(numba_rans.count_kernel)(symbols, histogram)
    assert histogram.sum() == ROWS * CHANNELS * TOKENS
    assert (histogram.max(axis=2) == TOKENS).all()


def test_quantizers_reach_elements_beyond_two_to_the_31():
    """LMCache #4920, in the quantizers."""
    values = np.array([[[2.0, -64.0]], [[127.0, 1.0]]], dtype=np.float32)
    x = repeated(values, (ROWS, TOKENS, CHANNELS))
    maxima = np.zeros((ROWS, 1), dtype=np.float32)
    apart(numba_quantize.maxima_kernel)(x, repeated(maxima, (ROWS, TOKENS)))
    assert maxima.ravel().tolist() == [64, 127]

    groups, deltas = -(-TOKENS // 10), TOKENS - -(-TOKENS // 10)
    scales = repeated(np.array([[0.75], [1.0]]), (ROWS, groups))
    totals, found = np.zeros(ROWS), np.zeros((ROWS, CHANNELS, 1), dtype=np.int32)
    apart(numba_quantize.squares_kernel)(x, scales, 10, totals)
    # anchors are 3 * 0.75 and -85 * 0.75; the other row is exact
    assert totals.tolist() == [deltas * (0.25**2 + 0.25**2), 0]
    bins = np.array([0.25, 1.0], dtype=np.float32)
    apart(numba_quantize.deltas_kernel)(x, scales, bins, 10, repeated(found, (ROWS, CHANNELS, deltas)))
    assert found[:, :, 0].tolist() == [[-1, -1], [0, 0]]
    anchors = np.zeros((ROWS, CHANNELS, 1), dtype=np.int32)
    apart(numba_quantize.anchors_kernel)(
        x, repeated(np.array([[0.75], [1.0]]), (ROWS, TOKENS)), repeated(anchors, (ROWS, CHANNELS, TOKENS))
    )
    assert anchors[:, :, 0].tolist() == [[3, -85], [127, 1]]
    back = np.zeros_like(values)
    apart(numba_quantize.reconstruct_kernel)(
        repeated(anchors, (ROWS, CHANNELS, groups)),
        scales,
        repeated(found, (ROWS, CHANNELS, deltas)),
        bins,
        10,
        1e30,
        repeated(back, (ROWS, TOKENS, CHANNELS)),
    )
    # the last token is a delta
    assert np.array_equal(back, values)
    coefficients = np.zeros((ROWS, 1), dtype=np.int32)
    apart(numba_uniform.quantize_kernel)(
        repeated(np.array([[1.5], [-4.0]], np.float32), (ROWS, CHANNELS * TOKENS)),
        0.5,
        repeated(coefficients, (ROWS, CHANNELS * TOKENS)),
    )
    assert coefficients.ravel().tolist() == [3, -8]


def test_symbols_more_than_two_to_the_31_apart_are_predicted_in_their_rows():
    """LMCache #4920, in predictions. Reserves 4 GiB of addresses and touches a few pages."""
    gap = (1 << 31) + 64
    rows = as_strided(np.empty(gap + 3, dtype=np.int16), (2, 3), (2 * gap, 2))
    rows[:] = [[1, 2, 3], [10, 20, 30]]
    columns, weights = np.array([[2, 0, 1]], dtype=np.int32), np.array([[1 << 14, 1 << 13]], dtype=np.int32)
    apart(numba_prediction._add_kernel)(0, 2, columns, weights, np.array([2], dtype=np.int32), rows)

    assert rows.tolist() == [[1, 2, 5], [10, 20, 50]]


def test_a_chunk_of_more_than_two_to_the_31_elements_survives():
    """LMCache #4920, whole, in the one codec whose copies fit a small machine."""
    tokens = 1 << 20 if LARGE else 100
    row = make_chunk(layers=16, tokens=1, heads=1, dim=65)
    kv = row.expand(16, 2, tokens, 1, 65)
    assert not LARGE or kv.numel() > 1 << 31
    data = encode_chunk(kv, Encoding("raw"), IDENTITY, None)
    back = decode_chunk(data, None).kv

    assert back.shape == kv.shape
    for layer in range(16):
        for token in (0, tokens // 2, tokens - 1):
            assert same_bits(back[layer, :, token], row[layer, :, 0])
    assert len(data) > 2 * kv.numel()
