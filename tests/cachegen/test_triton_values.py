"""Quantization and its inverse by the GPU kernels: the reference's bits, from and to caches of any layout."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from checks import backends, make_chunk, make_profile, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from triton_device import DEVICE, MARK, gpu_backend, put

from cachegen.codecs.cachegen import as_rows
from cachegen.kernels import anchor, triton_anchor
from cachegen.kernels.base import Turns
from cachegen.kernels.uniform import GRID_STEPS

pytestmark = MARK
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FIELDS = ("scale_bits", "anchors", "sigmas", "deltas")


def check_same(x, level):
    reference, numba, gpu = (backend.quantize(x, level) for backend in (*backends(), gpu_backend()))
    for name in FIELDS:
        a, b, c = (getattr(quantized, name) for quantized in (reference, numba, gpu))
        assert c.dtype == a.dtype, name
        assert np.array_equal(c, a), name
        assert np.array_equal(c, b), name
    return numba


@settings(max_examples=12, deadline=None)
@given(
    layers=st.integers(1, 2),
    tokens=st.integers(1, 32),
    heads=st.integers(1, 2),
    dim=st.integers(1, 40),
    level=st.integers(0, 4),
    scale=st.sampled_from([1e-45, 1e-40, 1e-20, 1.0, 1e20, 1e36]),
    seed=st.integers(0, 99),
)
def test_chunks_of_any_shape_and_size_quantize_to_the_same_bits(layers, tokens, heads, dim, level, scale, seed):
    x = as_rows(make_chunk(layers, tokens, heads, dim, torch.float32, seed)) * np.float32(scale)
    check_same(x, level)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-7, 1, 3e4])
def test_caches_of_any_layout_are_read_and_written_in_place(dtype, scale):
    layers, tokens, heads, dim = 2, 23, 2, 12
    kv = (make_chunk(layers, tokens, heads, dim, torch.float32) * scale).clamp(-6e4, 6e4).to(dtype)
    level, rows = 1, 2 * layers
    expected = check_same(as_rows(kv), level)
    bins = anchor.bins(expected.sigmas, level)
    # (rows, heads, room for more tokens, dim), as a model keeps it
    cache = torch.full((rows, heads, tokens + 9, dim), 5, dtype=dtype, device=DEVICE)
    view = cache.transpose(1, 2)[:, 4 : 4 + tokens]
    view.copy_(kv.view(rows, tokens, heads, dim))

    scale_bits, anchors = triton_anchor.quantize_anchors(view[:, :: anchor.GROUP_TOKENS])
    totals = triton_anchor.sum_squares(view, scale_bits)
    deltas = triton_anchor.quantize_deltas(view, scale_bits, anchors, put(bins))
    sigmas = anchor.sigmas_of_squares(totals.cpu().numpy(), deltas[0].numel())
    found = (scale_bits, anchors, torch.from_numpy(sigmas), deltas)
    assert all(np.array_equal(part.cpu().numpy(), getattr(expected, n)) for part, n in zip(found, FIELDS, strict=True))

    view.zero_()
    triton_anchor.reconstruct(scale_bits, anchors, put(bins), deltas, view)
    wanted = torch.empty(rows, tokens, heads, dim, dtype=dtype)
    backends()[1].dequantize(expected, bins, wanted)
    assert same_bits(view.cpu(), wanted)
    assert (cache[:, :, :4] == 5).all()
    assert (cache[:, :, 4 + tokens :] == 5).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 11])
def test_the_backend_dequantizes_to_the_same_bits_within_the_range_of_the_dtype(dtype, tokens):
    x = as_rows(make_chunk(2, tokens, 1, 5, torch.float32)) * np.float32(1e30)
    quantized = backends()[0].quantize(x, 0)
    bins = anchor.bins(quantized.sigmas, 0)
    outs = [torch.empty(4, tokens, 1, 5, dtype=dtype) for _ in range(2)]
    for backend, out in zip((backends()[1], gpu_backend()), outs, strict=True):
        backend.dequantize(quantized, bins, out)

    assert same_bits(*outs)
    assert torch.isfinite(outs[1]).all()


@pytest.mark.parametrize("step", GRID_STEPS)
def test_coefficients_quantize_to_the_same_bits_where_they_lie_between_two_symbols_too(step):
    rng = np.random.default_rng(0)
    y = np.append(rng.standard_normal(600) * 50, (np.arange(-20, 20) + 0.5) * step).astype(np.float32)
    y = np.append(y, np.float32([step * 2**20, 0.0, -0.0]))[None]

    reference, numba, gpu = (backend.quantize_uniform(y, step) for backend in (*backends(), gpu_backend()))
    assert np.array_equal(gpu, numba)
    assert np.array_equal(gpu, reference)


@pytest.mark.parametrize("tokens", [1, 700])
def test_counts_add_up_to_the_same_numbers(tokens):
    symbols = np.random.default_rng(0).integers(-300, 300, (2, 3, tokens)).astype(np.int32)
    numba, gpu = (np.full((2, 3, 256), 9, dtype=np.uint32) for _ in range(2))
    backends()[1].count(symbols, numba)
    gpu_backend().count(symbols, gpu)

    assert np.array_equal(numba, gpu)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("half", [0, 1])
def test_every_backend_restores_products_alike(half, dtype):
    transform = make_profile(3, 2, 6).tables.transform
    rotary, first_token = transform.rotary, 40
    coded = np.array([3, 0, 1, 4, 8, 5])
    steps = np.array(GRID_STEPS[:6])
    first_head, heads = 1, 4
    x = torch.randn(len(coded), heads * 6, generator=torch.Generator().manual_seed(0)) * 20

    parts = x.to(DEVICE).view(len(coded), heads, 6).transpose(0, 1)
    factors = torch.ones(6)
    turns = None
    if half == 0:
        parts = torch.bmm(parts, transform.inverse_key_roots[first_head : first_head + heads].to(DEVICE))
        cos, sin = (torch.stack(each) for each in zip(*_factors(rotary, first_token + coded), strict=True))
        kinds = put(np.repeat(rotary.of_layer, 2).astype(np.int32))
        turns = Turns(cos.to(DEVICE), sin.to(DEVICE), put(rotary.partners.astype(np.int32)), kinds)
    else:
        factors = factors / torch.from_numpy(np.repeat(transform.value_scales, 2))
    arguments = (put(steps.astype(np.float32)), factors.to(DEVICE), put(transform.means[half]).view(6, 6))
    cache = torch.zeros(3, 2, 9, 6, dtype=dtype, device=DEVICE)
    gpu_backend().restore(parts, first_head, *arguments, turns, put(coded), cache.transpose(1, 2))
    on_host = [part.cpu() for part in arguments]
    turns_on_host = turns and Turns(*(getattr(turns, field.name).cpu() for field in fields(turns)))
    wanted, numba = (torch.zeros(3, 9, 2, 6, dtype=dtype) for _ in range(2))
    for backend, out in zip(backends(), (wanted, numba), strict=True):
        backend.restore(parts.cpu(), first_head, *on_host, turns_on_host, torch.from_numpy(coded), out)

    # sums in another order: a few float32 roundings of the largest term, and one more rounding to the dtype
    largest = float(wanted.abs().max())
    tolerance = 8 * torch.finfo(torch.float32).eps + torch.finfo(dtype).eps
    for found in (cache.cpu().transpose(1, 2), numba):
        assert (found.float() - wanted.float()).abs().max() <= tolerance * largest
        assert torch.equal(found == 0, wanted == 0)


def _factors(rotary, positions):
    return [rotary.factors(kind, positions) for kind in range(rotary.kinds)]


def test_rows_beyond_two_to_the_31_elements_are_read_and_written_in_their_place():
    quantized = backends()[0].quantize(as_rows(make_chunk(1, 11, 1, 5, torch.float32)), 1)
    bins = anchor.bins(quantized.sigmas, 1)
    symbols = [put(part) for part in (quantized.scale_bits, quantized.anchors, bins, quantized.deltas)]
    # interpreted, pages between the rows are never touched and take no memory
    memory = torch.empty(2**31 + 100, dtype=torch.float16, device=DEVICE)
    far = memory.as_strided((2, 11, 1, 5), (2**31, 5, 5, 1))
    triton_anchor.reconstruct(*symbols, far)

    near = torch.empty(2, 11, 1, 5, dtype=torch.float16)
    backends()[1].dequantize(quantized, bins, near)
    assert same_bits(far.cpu(), near)
    scale_bits, anchors = triton_anchor.quantize_anchors(far[:, :: anchor.GROUP_TOKENS])
    expected = backends()[1].quantize_anchors(near[:, :, 0][:, :: anchor.GROUP_TOKENS].float().numpy())
    assert np.array_equal(scale_bits.cpu().numpy(), expected[0])
    assert np.array_equal(anchors.cpu().numpy(), expected[1])
