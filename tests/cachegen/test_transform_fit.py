"""What the transform is fitted to, and what each part of the fit buys."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk

from cachegen import transform_moments
from cachegen.codecs.rotary import no_rotary
from cachegen.codecs.units import APART, JOINT, units_of
from cachegen.coefficient_tables import laplace_shares
from cachegen.encoding import Encoding
from cachegen.errors import FormatError
from cachegen.kv import KVShape
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile_builder import ProfileBuilder
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

SHAPE = KVShape(3, 2, 5)


def moments_of(*pieces, shape=SHAPE):
    moments = TransformMoments(shape, no_rotary(shape.num_layers, shape.head_dim))
    for first_token, kv in pieces:
        moments.add(kv, first_token)
    return moments


def error_of(kv, level=4, **fit):
    """Squared error of K and V of each layer, ``(layers, 2)``, with a profile fitted to the chunk itself."""
    builder = ProfileBuilder(KVShape(kv.shape[0], kv.shape[3], kv.shape[4]), IDENTITY.model_fingerprint)
    builder.add(kv)
    profile = builder.build(**fit)
    back = decode_chunk(encode_chunk(kv, Encoding("transform", level), identity_of(profile), profile), profile).kv
    return (back - kv).square()


def test_moments_are_those_of_all_tokens_but_the_first_of_each_context():
    kv = make_chunk(tokens=200, dtype=torch.float32) + 1000.0
    moments = moments_of((0, kv[:, :, :90]), (90, kv[:, :, 90:]))
    x = kv[:, 1, 4:].transpose(0, 1).flatten(1).double()

    assert moments.num_tokens == 196
    torch.testing.assert_close(moments.means()[1].double(), x.mean(dim=0))
    expected = torch.cov(x.T, correction=0)
    torch.testing.assert_close(
        moments.covariance(moments.units[0])[30:, 30:].double(), expected, rtol=1e-3, atol=1e-3 * float(expected.max())
    )
    variances = x.var(dim=0, correction=0).reshape(3, -1).mean(dim=1)
    assert moments.sigmas()[:, 1] == pytest.approx(variances.sqrt().numpy(), rel=1e-3)


def test_a_sample_stays_within_its_bounds_and_spreads_over_all_contexts(monkeypatch):
    monkeypatch.setattr(transform_moments, "SAMPLE_TOKENS", 50)
    kv = torch.arange(400.0).reshape(1, 1, 400, 1, 1).expand(1, 2, 400, 1, 1)
    moments = TransformMoments(KVShape(1, 1, 1), no_rotary(1, 1))
    for first in range(0, 400, 40):
        moments.add(kv[:, :, first : first + 40], 4)
    sample = moments.sample(moments.units[0])[:, 0]

    assert 25 <= len(sample) <= 50
    assert float(sample.min()) < -150
    assert float(sample.max()) > 150


def test_a_layer_whose_errors_cost_more_gets_finer_steps():
    kv = make_chunk(tokens=400, dtype=torch.float32)
    layers, _, _, heads, dim = kv.shape
    fisher = np.broadcast_to(np.eye(dim, dtype=np.float32), (layers, 2, heads, dim, dim)).copy()
    plain = error_of(kv, fisher=fisher).mean(dim=(2, 3, 4))
    fisher[1, 0] *= 100.0
    aware = error_of(kv, fisher=fisher).mean(dim=(2, 3, 4))

    assert float(aware[1, 0]) < 0.5 * float(plain[1, 0])
    assert float(aware[0, 1]) > float(plain[0, 1])


def test_a_direction_of_keys_whose_errors_cost_more_errs_less():
    kv = torch.randn((1, 2, 2000, 1, 4), generator=torch.Generator().manual_seed(3))
    fisher = np.stack([np.diag([100.0, 1.0, 1.0, 1.0]), np.eye(4)]).astype(np.float32)[None, :, None]
    plain, aware = error_of(kv)[0, 0].mean(dim=0)[0], error_of(kv, fisher=fisher)[0, 0].mean(dim=0)[0]

    assert float(aware[0]) < 0.3 * float(plain[0])
    assert float(aware[1]) > float(plain[1])


def test_layers_that_repeat_each_other_are_coded_once():
    alone = torch.randn((1, 2, 800, 2, 4), generator=torch.Generator().manual_seed(4))
    sizes = []
    for kv in (alone, alone.expand(6, -1, -1, -1, -1).contiguous()):
        builder = ProfileBuilder(KVShape(kv.shape[0], 2, 4), IDENTITY.model_fingerprint)
        builder.add(kv)
        profile = builder.build()
        sizes.append(len(encode_chunk(kv, Encoding("transform", 4), identity_of(profile), profile)))

    # six times the energy in as many coefficients: log2(6) / 2 bits more of each, not six times as many
    assert sizes[1] < 2.5 * sizes[0]


def test_fewer_tokens_than_channels_still_make_a_codec():
    shape = KVShape(4, 2, 16)
    tables = fit_transform(moments_of((4, make_chunk(4, 20, 2, 16, torch.float32)), shape=shape))
    kv = make_chunk(4, 30, 2, 16, torch.float32)
    builder = ProfileBuilder(shape, IDENTITY.model_fingerprint)
    builder.add(kv[:, :, :20])
    profile = builder.build()
    data = encode_chunk(kv, Encoding("transform", 2), identity_of(profile), profile)

    assert (tables.ranks >= 1).all()
    assert float((decode_chunk(data, profile).kv - kv).square().mean()) < 0.2 * float(kv.var())


@pytest.mark.parametrize("grouping", [JOINT, APART], ids=["joint", "apart"])
@pytest.mark.parametrize("shape", [KVShape(30, 3, 64), KVShape(32, 32, 128), KVShape(1, 1, 5000), KVShape(7, 5, 100)])
def test_units_cover_all_channels_once_in_whole_heads(shape, grouping):
    units = units_of(shape, grouping)
    for half in range(2):
        own = [unit for unit in units if half in unit.halves]
        edges = [0, *(unit.end_channel for unit in own)]
        assert [unit.first_channel for unit in own] == edges[:-1]
        assert edges[-1] == shape.num_layers * shape.channels
    assert all(unit.channels % shape.head_dim == 0 for unit in units)
    assert all(len(unit.halves) == 1 + grouping.joint for unit in units)
    assert max(unit.channels for unit in units) <= max(grouping.unit_channels, (1 + grouping.joint) * shape.head_dim)
    assert [unit.index for unit in units] == list(range(len(units)))


def test_laplace_shares_sum_to_one_and_fall_with_magnitude():
    shares = laplace_shares(np.array([1e-3, 0.3, 1.0, 30.0, 1e4]))

    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert (np.diff(shares[:, 127:255], axis=1) <= 1e-12).all()
    assert (shares >= 0).all()


def test_roots_without_an_inverse_are_refused():
    tables = fit_transform(moments_of((4, make_chunk(tokens=50))))
    roots = tables.key_roots.copy()
    roots[2] = 0
    with pytest.raises(FormatError, match="key_roots has no inverse"):
        replace(tables, key_roots=roots)
