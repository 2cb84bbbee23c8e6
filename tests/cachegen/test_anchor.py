import numpy as np
import pytest
import torch
from checks import backends, make_chunk

from cachegen.codecs.cachegen import as_rows
from cachegen.kernels import anchor
from cachegen.kernels.scales import scale_values

ODD_TOKENS = [1, 2, 9, 10, 11, 63, 100, 513]


def rows(tokens=23, layers=3, heads=2, dim=5, seed=0):
    return as_rows(make_chunk(layers, tokens, heads, dim, seed=seed))


def quantized(x, level=1):
    return backends()[0].quantize(x, level)


def dequantized(backend, q, level=1, dtype=torch.float32):
    rows, channels, groups = q.anchors.shape
    out = torch.empty(rows, groups + q.deltas.shape[2], 1, channels, dtype=dtype)
    backend.dequantize(q, anchor.bins(q.sigmas, level), out)
    return out[:, :, 0]


def test_first_token_of_each_group_of_ten_is_the_anchor():
    assert [token for token in range(23) if token not in anchor.delta_tokens(23)] == [0, 10, 20]


@pytest.mark.parametrize(("tokens", "groups"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_every_token_is_an_anchor_or_a_delta(tokens, groups):
    assert anchor.num_groups(tokens) == groups
    assert anchor.num_deltas(tokens) == tokens - groups == len(anchor.delta_tokens(tokens))


@pytest.mark.parametrize(
    ("layers", "sizes"),
    [(1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (4, [2, 1, 1]), (5, [2, 2, 1]), (32, [11, 11, 10])],
)
def test_bins_widen_by_thirds_of_the_layers(layers, sizes):
    widths = anchor.bins(np.ones(2 * layers, dtype=np.float32), 3)

    expected = [width for width, size in zip(anchor.THIRD_BINS, sizes, strict=False) for _ in range(2 * size)]
    assert widths.tolist() == expected


def test_levels_scale_the_papers_bins_and_the_first_is_finest():
    widths = [anchor.bins(np.full(2, 2, dtype=np.float32), level)[0] for level in range(5)]

    assert widths == [np.float32(w) for w in (0.25, 0.4, 0.7, 1.0, 1.5)]


def test_anchor_uses_all_eight_bits_and_no_more():
    symbols = quantized(rows()).anchors

    largest = np.abs(symbols).max(axis=1)
    assert largest.max() <= 127
    assert largest.min() >= 126


def test_deltas_are_taken_to_the_dequantized_anchor():
    x = rows()
    q = quantized(x)
    scales = scale_values(q.scale_bits).astype(np.float64)
    token, group = 17, 1

    base = q.anchors[:, :, group] * scales[:, [group]]
    bins = anchor.bins(q.sigmas, 1).astype(np.float64)[:, None]
    at = anchor.delta_tokens(23).tolist().index(token)
    assert np.array_equal(q.deltas[:, :, at], np.rint((x[:, token] - base) / bins))


def test_sigma_is_the_root_mean_square_of_the_rows_deltas():
    x = rows(tokens=100)
    q = quantized(x)
    delta = anchor.deltas(x, anchor.anchor_values(q.anchors.transpose(0, 2, 1), q.scale_bits))

    assert q.sigmas == pytest.approx(np.sqrt((delta**2).mean(axis=(1, 2))), rel=1e-6)


def test_constant_difference_to_the_anchor_is_coded_although_it_has_no_variance():
    x = np.ones((2, 10, 3), dtype=np.float32)
    x[:, 1:] = 3
    q = quantized(x)

    back = dequantized(backends()[0], q).numpy()
    assert np.abs(back - x).max() <= anchor.bins(q.sigmas, 1).max() / 2


def test_rows_without_difference_have_sigma_zero_and_decode_to_the_anchor():
    x = np.zeros((2, 12, 3), dtype=np.float32)
    q = quantized(x)

    assert q.sigmas.tolist() == [0, 0]
    assert not dequantized(backends()[0], q).any()


@pytest.mark.parametrize("tokens", ODD_TOKENS)
@pytest.mark.parametrize(("layers", "heads", "dim"), [(1, 1, 1), (3, 3, 7), (4, 2, 16)])
def test_backends_quantize_to_the_same_bits(tokens, layers, heads, dim):
    x = rows(tokens, layers, heads, dim)
    reference, numba = (backend.quantize(x, 2) for backend in backends())

    for name in ("scale_bits", "anchors", "sigmas", "deltas"):
        a, b = getattr(reference, name), getattr(numba, name)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.array_equal(a, b)


@pytest.mark.parametrize("tokens", ODD_TOKENS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-7, 1, 3e4, 1e30])
def test_backends_reconstruct_the_same_bits_within_the_range_of_the_dtype(tokens, dtype, scale):
    q = quantized(rows(tokens, 2, 3, 7) * np.float32(scale))
    reference, numba = (dequantized(backend, q, dtype=dtype) for backend in backends())

    assert torch.equal(reference, numba)
    assert torch.isfinite(numba).all()


@pytest.mark.parametrize("scale", [1e-45, 1e-40, 1e-20, 1e20, 1e37])
def test_backends_agree_at_the_ends_of_float32(scale):
    x = (rows(tokens=31) * np.float32(scale)).astype(np.float32)
    first, second = backends()
    q = first.quantize(x, 0)

    assert np.array_equal(q.deltas, second.quantize(x, 0).deltas)
    assert torch.equal(dequantized(first, q, 0), dequantized(second, q, 0))
    assert np.abs(q.deltas).max() <= 8 * np.sqrt(q.deltas[0].size)


@pytest.mark.parametrize("tokens", [1, 11, 63])
def test_backends_count_alike_with_values_outside_the_alphabet_as_escapes(tokens):
    symbols = quantized(rows(tokens), 0).anchors * 2
    counts = [np.zeros((*symbols.shape[:2], 256), dtype=np.uint32) for _ in backends()]
    for backend, into in zip(backends(), counts, strict=True):
        backend.count(symbols, into)

    assert np.array_equal(*counts)
    assert counts[0][:, :, 255].sum() == (np.abs(symbols) > 127).sum() > 0
    assert (counts[0].sum(axis=2) == symbols.shape[2]).all()
