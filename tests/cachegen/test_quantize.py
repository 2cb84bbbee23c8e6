import numpy as np
import pytest
import torch
from checks import IDENTITY, make_chunk
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs.bit_packing import pack_symbols, packed_bytes, unpack_symbols
from cachegen.codecs.quantize import SECTION_SYMBOLS
from cachegen.container import unpack
from cachegen.encoding import parse_encoding
from cachegen.kernels.scales import round_up_scales, scale_values
from cachegen.pipeline import decode_chunk, encode_chunk

LARGEST = {"quant8": 127, "quant4": 7, "quant3": 3}
# the smallest bfloat16 above 0: scales cannot be finer
SMALLEST_SCALE = 2.0**-133

finite_floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def round_trip(kv, name):
    return decode_chunk(encode_chunk(kv, parse_encoding(name), IDENTITY, None), None, IDENTITY).kv


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("layers", "tokens", "heads", "dim"), [(1, 1, 1, 1), (3, 11, 3, 5), (2, 63, 1, 7)])
def test_error_is_at_most_half_a_scale(name, dtype, layers, tokens, heads, dim):
    kv = make_chunk(layers, tokens, heads, dim, dtype)
    back = round_trip(kv, name)

    largest = kv.double().abs().amax(dim=(3, 4), keepdim=True)
    scale = largest / LARGEST[name] * (1 + 2.0**-7)
    rounding = kv.double().abs() * torch.finfo(dtype).eps + scale * torch.finfo(dtype).eps
    assert back.dtype == dtype
    assert bool(((back.double() - kv.double()).abs() <= scale / 2 + rounding).all())


@pytest.mark.parametrize("name", LARGEST)
@settings(max_examples=60, deadline=None)
@given(values=st.lists(finite_floats, min_size=1, max_size=9))
def test_any_finite_float32_stays_finite_and_in_bound(name, values):
    kv = torch.tensor(values, dtype=torch.float32).reshape(1, 1, 1, 1, -1).expand(1, 2, 1, 1, -1)
    back = round_trip(kv, name).double()

    scale = max(kv.double().abs().max().item() / LARGEST[name] * (1 + 2.0**-7), SMALLEST_SCALE)
    assert bool(((back - kv.double()).abs() <= scale * (0.5 + 1e-6)).all())


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_largest_finite_values_do_not_become_infinite(name, dtype):
    kv = torch.full((2, 2, 3, 1, 4), torch.finfo(dtype).max, dtype=dtype)
    kv[..., 1] = torch.finfo(dtype).min

    back = round_trip(kv, name)

    assert bool(torch.isfinite(back).all())
    assert torch.equal(back.sign(), kv.sign())


@pytest.mark.parametrize("name", LARGEST)
def test_zero_tokens_decode_to_zeros_beside_others(name):
    kv = make_chunk(tokens=5)
    kv[:, :, 2] = 0

    back = round_trip(kv, name)

    assert bool((back[:, :, 2] == 0).all())
    assert bool((back[:, :, 3] != 0).any())


def test_sizes_are_bits_per_value_plus_one_scale_per_token():
    kv = make_chunk(layers=4, tokens=100, heads=2, dim=32)
    raw = len(encode_chunk(kv, parse_encoding("raw"), IDENTITY, None))
    header = raw - kv.numel() * 2 + 32

    for name, bits in (("quant8", 8), ("quant4", 4), ("quant3", 3)):
        size = len(encode_chunk(kv, parse_encoding(name), IDENTITY, None))
        assert size == header + kv.numel() * bits // 8 + 4 * 2 * 100 * 2


@settings(deadline=None)
@given(st.integers(1, 8), st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_symbols_of_any_width_and_number_unpack_to_what_was_packed(bits, values):
    symbols = np.array(values, dtype=np.uint8) >> np.uint8(8 - bits)
    packed = pack_symbols(symbols, bits)

    assert len(packed) == packed_bytes(len(symbols), bits) == -(-len(symbols) * bits // 8)
    assert unpack_symbols(packed, bits, len(symbols)).tolist() == symbols.tolist()


def test_symbols_are_packed_from_the_lowest_bit_on():
    packed = pack_symbols(np.array([1, 2, 3, 4, 5, 6, 7, 0, 5], dtype=np.uint8), 3)

    # 7 654 321 with the first symbol in the low bits, then the ninth alone
    assert int.from_bytes(packed[:3].tobytes(), "little") == 0o07654321
    assert packed[3:].tolist() == [5]


@pytest.mark.parametrize(("layers", "tokens", "heads", "dim"), [(1, 1, 1, 1), (1, 3, 1, 3), (3, 11, 3, 5)])
def test_three_bit_chunks_end_in_the_byte_that_their_last_symbol_needs(layers, tokens, heads, dim):
    kv = make_chunk(layers, tokens, heads, dim)
    data = encode_chunk(kv, parse_encoding("quant3"), IDENTITY, None)

    assert kv.numel() % 8 != 0
    assert len(unpack(data).sections[SECTION_SYMBOLS]) == -(-kv.numel() * 3 // 8)


@settings(deadline=None)
@given(st.floats(min_value=0, width=32, allow_nan=False, allow_infinity=False), st.sampled_from([127, 7, 3]))
def test_scale_is_the_smallest_bfloat16_that_covers_the_row(max_abs, largest):
    bits = round_up_scales(np.array([max_abs], dtype=np.float32), largest)
    scale = float(scale_values(bits)[0])

    assert scale * largest >= max_abs
    if bits[0] > 0:
        below = float(scale_values(bits - np.uint16(1))[0])
        assert below * largest < max_abs
