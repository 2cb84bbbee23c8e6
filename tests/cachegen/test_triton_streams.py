"""Streams of the GPU kernels: the same bytes as the reference's and Numba's, whatever is coded, and no more memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import backends
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rans import ALL, FIELDS, change, flip, move, narrow_tables, random_symbols, tables_of
from triton_device import DEVICE, MARK, gpu_backend, many_lanes, put  # noqa: F401 - a fixture

from cachegen.errors import FormatError
from cachegen.kernels import triton_streams
from cachegen.kernels.triton_rans import LAUNCH, decode_kernel
from cachegen.kernels.triton_tables import upload_tables

pytestmark = [*MARK, pytest.mark.usefixtures("many_lanes")]


def check_same(symbols, tables):
    coded = [backend.encode_streams(symbols, tables) for backend in (*backends(), gpu_backend())]
    for name in FIELDS:
        reference, numba, gpu = (getattr(streams, name) for streams in coded)
        assert (gpu.dtype, gpu.shape) == (numba.dtype, numba.shape), name
        assert np.array_equal(gpu, numba), name
        assert np.array_equal(gpu, reference), name
    decoded = gpu_backend().decode_streams(coded[0], symbols.shape[2], tables, ALL)
    assert decoded.dtype == np.int32
    assert np.array_equal(decoded, symbols)


@pytest.mark.parametrize(
    ("rows", "channels", "tokens"),
    [(1, 1, 1), (1, 1, 2), (2, 1, 40), (1, 45, 1), (1, 3, 67), (1, 20, 9), (1, 2, 70)],
)
def test_streams_are_the_same_bytes(rows, channels, tokens):
    tables = tables_of(random_symbols(rows, channels, 200, spread=20, seed=1))
    check_same(random_symbols(rows, channels, tokens, spread=20), tables)


@settings(max_examples=8, deadline=None)
@given(
    values=st.lists(st.integers(-2, 2) | st.integers(-(2**28), 2**28), min_size=1, max_size=25),
    channels=st.integers(1, 3),
)
def test_any_values_are_the_same_bytes_even_where_every_one_is_an_escape(values, channels):
    symbols = np.tile(np.array(values, dtype=np.int32), (1, channels, 1))
    check_same(symbols, narrow_tables(1, channels))


def test_one_launch_codes_rows_of_unlike_shapes_and_lanes():
    shapes = [(2, 3, 40), (1, 1, 1), (2, 7, 2)]
    parts = [random_symbols(*shape, spread=20, seed=i) for i, shape in enumerate(shapes)]
    tables = [tables_of(random_symbols(rows, channels, 99, spread=9)) for rows, channels, _ in shapes]
    uploaded = upload_tables(tables, DEVICE)
    tokens = np.repeat([shape[2] for shape in shapes], [shape[0] for shape in shapes])
    plan = triton_streams.plan_rows(uploaded, np.arange(5), tokens)

    flat = put(np.concatenate([part.ravel() for part in parts]))
    coded = triton_streams.encode(flat, plan, uploaded)
    assert sorted(set(plan.lanes)) == [1, 4, 32]
    assert torch.equal(triton_streams.decode(coded, plan, uploaded, str), flat)
    for first, end, part, table in ((0, 2, parts[0], tables[0]), (2, 3, parts[1], tables[1])):
        alone = triton_streams.download_streams(coded.part(first, end), int(plan.lanes[first]))
        expected = backends()[1].encode_streams(part, table)
        assert all(np.array_equal(getattr(alone, name), getattr(expected, name)) for name in FIELDS)
        decoded = triton_streams.decode(coded.part(first, end), plan.part(first, end), uploaded, str)
        assert np.array_equal(decoded.cpu().numpy(), part.ravel())


def soundly_coded():
    tables = narrow_tables(2, 3)
    return backends()[1].encode_streams(random_symbols(2, 3, 30, spread=20), tables), tables


@pytest.mark.parametrize(
    ("name", "edit", "reason"),
    [
        ("num_words", move(1, -1), "words"),
        ("num_words", move(0, -7), "words"),
        ("num_escapes", move(1, -1), "escapes"),
        ("states", flip(0), "row 0"),
        ("words", flip(-1), "row 1"),
    ],
)
def test_damaged_streams_are_refused_with_row_and_reason(name, edit, reason):
    coded, tables = soundly_coded()

    with pytest.raises(FormatError, match=rf"rANS stream of row [01]: .*{reason}|rANS stream of {reason}"):
        gpu_backend().decode_streams(change(coded, name, edit), 30, tables, ALL)


def test_a_damaged_row_is_named_by_its_place_among_all():
    coded, tables = soundly_coded()
    damaged = change(coded, "num_words", move(1, -1))

    gpu_backend().decode_streams(damaged, 30, tables, slice(0, 1))
    with pytest.raises(FormatError, match="row 1"):
        gpu_backend().decode_streams(damaged, 30, tables, slice(1, 2))


def inside(values, fill, margin=64):
    """Values as the middle of a longer tensor whose other elements are ``fill``."""
    buffer = torch.full((len(values) + 2 * margin,), fill, dtype=torch.int32).numpy().astype(values.dtype)
    buffer[margin:-margin] = values
    buffer = put(buffer)
    return buffer, buffer[margin:-margin]


def decode_among(coded, tables, fill):
    """Symbols, faults and what surrounds the symbols, decoded where all memory around is ``fill``."""
    uploaded = upload_tables([tables], DEVICE)
    rows, lanes = coded.states.shape
    plan = triton_streams.plan_rows(uploaded, np.arange(rows), np.full(rows, 30), np.full(rows, lanes))
    streams = triton_streams.upload_streams([coded], DEVICE)
    _, words = inside(coded.words, fill)
    _, escapes = inside(coded.escapes, fill)
    buffer, symbols = inside(np.zeros(plan.num_symbols, dtype=np.int32), fill)
    faults = torch.empty(rows, dtype=torch.int32, device=DEVICE)
    described = triton_streams.describe(plan, coded.num_words, coded.num_escapes)
    decode_kernel[(rows,)](
        put(described), streams.states, words, escapes, uploaded.entries, uploaded.cumulative, symbols, faults, **LAUNCH
    )
    outside = torch.cat((buffer[:64], buffer[-64:]))
    return symbols.cpu().numpy(), faults.cpu().numpy(), outside.cpu().numpy()


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), words=st.integers(0, 20), escapes=st.integers(0, 20))
def test_random_streams_are_refused_and_touch_nothing_outside_their_rows(seed, words, escapes):
    rng = np.random.default_rng(seed)
    coded, tables = soundly_coded()
    hostile = replace(
        coded,
        states=rng.integers(2**16, 2**32, coded.states.shape, dtype=np.uint32),
        num_words=np.full(2, words, dtype=np.int64),
        words=rng.integers(0, 2**16, 2 * words, dtype=np.uint16),
        num_escapes=np.full(2, escapes, dtype=np.int64),
        escapes=rng.integers(-9, 9, 2 * escapes, dtype=np.int32),
    )
    symbols, faults, outside = decode_among(hostile, tables, 7)
    others, other_faults, others_outside = decode_among(hostile, tables, 8)

    assert faults.all()
    assert np.array_equal(symbols, others)
    assert np.array_equal(faults, other_faults)
    assert (outside == 7).all()
    assert (others_outside == 8).all()
