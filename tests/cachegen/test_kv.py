import pytest
import torch
from checks import IDENTITY, make_chunk

from cachegen.encoding import Encoding
from cachegen.errors import InvalidInputError, NonFiniteError
from cachegen.kv import KV_DTYPES, MAX_CHUNK_TOKENS, ChunkLayout, KVShape, check_kv, dtype_of, layout_of
from cachegen.pipeline import encode_chunk


def test_check_kv_returns_the_shape():
    assert check_kv(make_chunk(layers=4, tokens=7, heads=3, dim=5)) == KVShape(4, 3, 5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [entry.torch for entry in KV_DTYPES])
def test_first_non_finite_value_is_named_by_its_place(value, dtype):
    kv = make_chunk(dtype=dtype)
    kv[1, 1, 7, 0, 2] = value
    kv[2, 0, 0, 0, 0] = value

    with pytest.raises(NonFiniteError, match=f"{value} at layer 1, K/V V, token 7, head 0, dim 2"):
        check_kv(kv)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5, 6), (2, 2, 4, 5), (2, 2, 0, 5, 6), (0, 2, 4, 5, 6), (2, 2, 4, 5, 0)])
def test_tensors_that_are_no_chunks_are_refused(shape):
    with pytest.raises(InvalidInputError):
        check_kv(torch.zeros(shape))


# Made when called: PyTorch warns that some of these are young.
WITHOUT_ELEMENTS = {
    "meta": lambda dense: dense.to("meta"),
    "sparse COO": lambda dense: dense.to_sparse(),
    "sparse CSR": lambda dense: dense[0, 0, :, 0].to_sparse_csr(),
    "nested": lambda dense: torch.nested.nested_tensor([dense[0], dense[1]]),
    "quantized": lambda dense: torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
    "complex": lambda dense: dense.to(torch.complex64),
    "integer": lambda dense: dense.to(torch.int32),
    "8-bit float": lambda dense: dense.to(torch.float8_e4m3fn),
    "array": lambda dense: dense.numpy(),
    "list": lambda dense: [1.0],
    "nothing": lambda dense: None,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", WITHOUT_ELEMENTS)
def test_what_has_no_elements_of_a_known_type_is_refused(kind):
    kv = WITHOUT_ELEMENTS[kind](make_chunk(dtype=torch.float32))
    with pytest.raises(InvalidInputError, match="KV tensor"):
        check_kv(kv)
    with pytest.raises(InvalidInputError, match="KV tensor"):
        encode_chunk(kv, Encoding("raw"), IDENTITY, None)


def test_dtype_outside_the_list_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"torch.float64.*float32, float16, bfloat16"):
        dtype_of(torch.zeros(1, dtype=torch.float64))


def test_dtype_codes_are_fixed():
    assert {entry.name: entry.code for entry in KV_DTYPES} == {"float32": 1, "float16": 2, "bfloat16": 3}


def test_layout_counts_elements_beyond_32_bits():
    layout = ChunkLayout(KVShape(80, 8, 128), 16_384, KV_DTYPES[2])

    assert layout.num_elements == 2_684_354_560
    assert layout.tensor_shape == (80, 2, 16_384, 8, 128)


def test_chunks_beyond_the_format_are_refused():
    with pytest.raises(InvalidInputError, match="num_tokens"):
        ChunkLayout(KVShape(1, 1, 1), MAX_CHUNK_TOKENS + 1, KV_DTYPES[0])
    with pytest.raises(InvalidInputError, match="elements"):
        ChunkLayout(KVShape(4096, 4096, 16_384), 1, KV_DTYPES[0])


def test_layout_of_reads_strided_tensors():
    kv = make_chunk(tokens=12).transpose(3, 4)

    assert layout_of(kv).shape == KVShape(3, 5, 2)


@pytest.mark.parametrize("value", [3.0, "3", None])
def test_sizes_that_are_no_integers_are_refused(value):
    with pytest.raises(InvalidInputError, match=r"num_kv_heads is .*, must be an integer"):
        KVShape(3, value, 5)
