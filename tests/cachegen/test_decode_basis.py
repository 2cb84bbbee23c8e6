"""The products that decoding makes of a basis in two stages, against the basis itself."""

import numpy as np
import pytest
import torch

from cachegen.codecs import decode_basis as module
from cachegen.codecs.basis import Basis
from cachegen.codecs.decode_basis import decode_basis

CPU = torch.device("cpu")
FEATURES = 24
# more rows than a product is filled up to, and fewer
WIDTHS, ROWS, LEADS, JOINT_ROWS = (150, 420, 20), (150, 400, 20), (80, 290, 5), 370


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request, monkeypatch):
    monkeypatch.setattr(module, "product_dtype", lambda device_type: request.param)
    return request.param


def orthonormal(rng, rows, size):
    return np.linalg.qr(rng.standard_normal((size, size)))[0][:rows].astype(np.float16)


def in_stages(widths=WIDTHS, rows=ROWS, leads=LEADS, joint_rows=JOINT_ROWS, halves=2):
    rng = np.random.default_rng(5)
    blocks = tuple(orthonormal(rng, *shape) for shape in zip(rows, widths, strict=True))
    others = np.repeat(np.arange(1, 1 + len(rows)), np.subtract(rows, leads))
    sources = rng.permutation([*others, *[0] * joint_rows]).astype(np.uint8)
    joint = orthonormal(rng, joint_rows, sum(leads))
    basis = Basis(blocks, np.array(leads, dtype=np.int32), joint, sources, halves)
    basis.check()
    return basis


def random_symbols(rank, tokens, dtype, largest):
    rng = torch.Generator().manual_seed(rank + tokens)
    symbols = torch.randint(-largest, largest + 1, (rank, tokens), generator=rng).to(dtype)
    symbols[torch.rand((rank, tokens), generator=rng) < 0.4] = 0
    return symbols


def random_predictor(channels):
    rng = torch.Generator().manual_seed(9)
    return (torch.randn((FEATURES, channels), generator=rng) / 10).half()


def random_features(tokens):
    return torch.randn((tokens, FEATURES), generator=torch.Generator().manual_seed(tokens)) * 20


def magnitudes(basis):
    """Of the elements, so that what it restores bounds every sum on the way."""
    return Basis(tuple(map(np.abs, basis.blocks)), basis.leads, np.abs(basis.joint), basis.sources, basis.halves)


def check_channels(basis, symbols, predictor, dtype):
    """What is decoded is what the basis restores and the features predict, within a few roundings of the type."""
    rank, tokens = symbols.shape
    features = None if predictor is None else random_features(tokens)
    decoded = list(decode_basis(basis, predictor, CPU).channels(symbols, features))
    y, prefix = symbols.float(), basis.prefix(rank)
    expected, largest = prefix.restore(y), magnitudes(prefix).restore(y.abs())
    if features is not None:
        expected = expected + features @ predictor.float()
        largest = largest + features.abs() @ predictor.float().abs()

    assert len(decoded) == len(basis.blocks)
    for own, channels in zip(decoded, basis.channels_of, strict=True):
        assert own.dtype == dtype
        assert own.shape == (len(channels), tokens)
        # elements of both stages and of the features, symbols, leads and the sum are rounded
        bound = (3 * torch.finfo(dtype).eps + 1e-6) * largest[:, channels].T + 1e-6
        assert bool(((own.float() - expected[:, channels].T).abs() <= bound).all())


@pytest.mark.parametrize("with_predictor", [False, True], ids=["no codebook", "codebook"])
@pytest.mark.parametrize(("symbol_dtype", "largest"), [(torch.int16, 90), (torch.int32, 200_000)])
@pytest.mark.parametrize("tokens", [1, 16, 17, 64, 65, 128, 200])
def test_channels_are_those_that_the_basis_restores(dtype, tokens, symbol_dtype, largest, with_predictor):
    basis = in_stages()
    predictor = random_predictor(sum(WIDTHS)) if with_predictor else None
    for rank in (1, 2, 64, 65, 128, 129, 256, 257, 400, basis.rank - 1, basis.rank):
        check_channels(basis, random_symbols(rank, tokens, symbol_dtype, largest), predictor, dtype)


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize(("leads", "joint_rows"), [((3, 4, 1), 5), ((0, 7, 2), 9), ((8, 10, 6), 24), ((0, 0, 0), 0)])
def test_channels_are_right_at_every_rank(dtype, halves, leads, joint_rows):
    basis = in_stages((8, 12, 6), (8, 10, 6), leads, joint_rows, halves)
    for rank in range(1, basis.rank + 1):
        for predictor in (None, random_predictor(26)):
            check_channels(basis, random_symbols(rank, 17, torch.int16, 90), predictor, dtype)


@pytest.mark.parametrize("with_predictor", [False, True], ids=["no codebook", "codebook"])
def test_a_basis_of_one_block_is_a_single_stage(dtype, with_predictor):
    basis = Basis.of_one_block(orthonormal(np.random.default_rng(1), 140, 160), halves=2)
    predictor = random_predictor(160) if with_predictor else None
    for rank in (1, 100, 128, 129, 140):
        check_channels(basis, random_symbols(rank, 65, torch.int16, 90), predictor, dtype)


def test_float32_products_of_quarters_are_exact(monkeypatch):
    monkeypatch.setattr(module, "product_dtype", lambda device_type: torch.float32)
    rng = np.random.default_rng(3)
    basis = in_stages((8, 12, 6), (8, 10, 6), (3, 4, 1), 5)
    quarters = [(rng.integers(-4, 5, rows.shape) / 4).astype(np.float16) for rows in (basis.joint, *basis.blocks)]
    basis = Basis(tuple(quarters[1:]), basis.leads, quarters[0], basis.sources, basis.halves)
    symbols = random_symbols(basis.rank, 20, torch.int32, 1000)
    for rank in range(1, basis.rank + 1):
        restored = basis.prefix(rank).restore(symbols[:rank].float())
        decoded = decode_basis(basis, None, CPU).channels(symbols[:rank], None)
        for own, channels in zip(decoded, basis.channels_of, strict=True):
            assert torch.equal(own, restored[:, channels].T)


def test_tokens_of_one_block_do_not_depend_on_those_beside_them(dtype):
    basis, predictor = in_stages(), random_predictor(sum(WIDTHS))
    symbols, features = random_symbols(basis.rank, 64, torch.int16, 90), random_features(64)
    others = symbols.clone()
    others[:, 20:] = 7
    decoded = decode_basis(basis, predictor, CPU)
    for a, b in zip(decoded.channels(symbols, features), decoded.channels(others, features), strict=True):
        assert torch.equal(a[:, :20], b[:, :20])
        assert not torch.equal(a[:, 20:], b[:, 20:])
