"""Compiled kernels allocate for a row at most, never for its channels, lanes, groups or tokens."""

import numpy as np
import pytest
import torch
from checks import identity_of, make_chunk, make_profile
from numba.core.runtime import _nrt_python, rtsys

from cachegen.codecs import transform
from cachegen.codecs.token_references import TokenReferences
from cachegen.encoding import Encoding
from cachegen.pipeline import decode_chunk, encode_chunk


@pytest.fixture
def counted():
    _nrt_python.memsys_enable_stats()
    yield
    _nrt_python.memsys_disable_stats()


def allocations(work):
    """How often kernels took memory meanwhile, arguments that Numba wraps included."""
    before = rtsys.get_allocation_stats().alloc
    work()
    return rtsys.get_allocation_stats().alloc - before


def each_from_the_one_before(symbols, _transform, places):
    """References of one mode and one set of tables, so that there are as many streams whatever the tokens."""
    before = np.maximum(np.arange(len(places)) - 1, 0)
    modes = np.tile(np.minimum(np.arange(len(places)), 2), (len(symbols), 1))
    return TokenReferences(before, before, modes, np.zeros_like(modes))


@pytest.mark.parametrize("encoding", [Encoding("cachegen", 1), Encoding("cachegen-repo", 1)], ids=str)
@pytest.mark.usefixtures("counted")
def test_a_long_wide_chunk_makes_no_more_allocations_than_a_short_narrow_one(encoding):
    counts = {}
    for tokens, heads in ((21, 1), (700, 6)):
        profile, kv = make_profile(2, heads, 8), make_chunk(2, tokens, heads, 8, torch.bfloat16)
        identity = identity_of(profile)
        data = encode_chunk(kv, encoding, identity, profile)
        decode_chunk(data, profile)
        counts[tokens] = (
            allocations(lambda kv=kv, to=(identity, profile): encode_chunk(kv, encoding, *to)),
            allocations(lambda data=data, profile=profile: decode_chunk(data, profile)),
        )

    assert counts[700] == counts[21]
    assert min(counts[21]) > 0


@pytest.mark.usefixtures("counted")
def test_the_transform_makes_as_many_allocations_for_few_tokens_as_for_many_that_are_coded_together(monkeypatch):
    # a model of a single unit has room for few tokens at once; those of several units restore as many as here
    monkeypatch.setattr(transform, "MEMORY", 40.0)
    monkeypatch.setattr(transform, "choose_references", each_from_the_one_before)
    profile = make_profile(2, 2, 8)
    found = []
    for tokens in (40, 800):
        kv = make_chunk(2, tokens, 2, 8)
        data = encode_chunk(kv, Encoding("transform", 0), identity_of(profile), profile)
        decode_chunk(data, profile)
        found.append(allocations(lambda data=data: decode_chunk(data, profile)))

    assert found[0] == found[1] > 0
