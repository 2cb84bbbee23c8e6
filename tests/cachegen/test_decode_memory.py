"""Decoding one chunk takes at most 1.25 times its output beside the output, as the kernel counts it."""

import numpy as np
import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk, make_features, make_tokens

from cachegen.benchmark.peak_memory import decode_peak
from cachegen.codebook_fit import OWN_FEATURES, PREVIOUS_FEATURES
from cachegen.codecs.base import DECODE_MEMORY
from cachegen.codecs.cachegen import SECTION_DELTA_STREAMS
from cachegen.container import unpack
from cachegen.encoding import CODEC_LEVELS, Encoding
from cachegen.kv import KVShape
from cachegen.pipeline import encode_chunk
from cachegen.profile import save_profile
from cachegen.profile_builder import ProfileBuilder

# Whatever the codec: the interpreter's own small objects, and the resolution of the measurement.
SLACK_BYTES = 1 << 20
# Two units of the transform for the keys and two for the values, as the smallest models that are of use have.
SHAPE = KVShape(num_layers=12, num_kv_heads=4, head_dim=64)
FINEST = [Encoding(codec, 0 if num_levels else None) for codec, num_levels in CODEC_LEVELS.items()]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    kv = make_chunk(SHAPE.num_layers, 1100, SHAPE.num_kv_heads, SHAPE.head_dim, torch.bfloat16)
    # as many features as there can be, since decoding holds those of all tokens
    features = make_features(800, OWN_FEATURES, PREVIOUS_FEATURES)
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint, features=features)
    builder.add(kv, make_tokens(1100, 800))
    profile = builder.build()
    assert profile.tables.transform.codebook.num_features == OWN_FEATURES + PREVIOUS_FEATURES
    save_profile(profile, folder / "profile")
    return folder, kv, profile


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, contexts):
    """A profile of contexts in which one channel of each head has all the energy."""
    folder = tmp_path_factory.mktemp("narrow")
    kv = contexts[1] * 0.02
    kv[..., 0] = contexts[1][..., 0] * 4
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    builder.add(kv)
    profile = builder.build()
    save_profile(profile, folder / "profile")
    return folder, contexts[1], profile


def peak_of(encoding, folder, kv, profile):
    """Peak beside the output of decoding 1,024 tokens, and the container."""
    paths = {tokens: folder / f"{encoding}-{tokens}" for tokens in (20, 1024)}
    for tokens, path in paths.items():
        path.write_bytes(encode_chunk(kv[:, :, :tokens], encoding, identity_of(profile), profile, 0))
    peak, reason = decode_peak(paths[1024], paths[20], folder / "profile")
    assert peak is not None, reason
    return peak, paths[1024].read_bytes()


@pytest.mark.parametrize("encoding", FINEST, ids=str)
def test_decoding_takes_at_most_a_quarter_more_than_its_output_again(encoding, contexts):
    folder, kv, profile = contexts
    output_bytes = kv[:, :, :1024].nbytes
    peak, _ = peak_of(encoding, folder, kv, profile)

    # the streams as read from the file are part of it
    assert peak <= DECODE_MEMORY * output_bytes + SLACK_BYTES, f"{peak / output_bytes:.2f} times the output"


def test_a_chunk_of_exact_tokens_alone_takes_no_more(narrow):
    _, kv, _ = narrow
    output_bytes = kv[:, :, :1024].nbytes
    peak, container = peak_of(Encoding("transform", 0), *narrow)

    assert len(container) > output_bytes
    assert peak <= DECODE_MEMORY * output_bytes + SLACK_BYTES, f"{peak / output_bytes:.2f} times the output"


def test_a_chunk_of_mostly_escapes_takes_their_four_bytes_each_beside_that(narrow):
    _, kv, _ = narrow
    output_bytes = kv[:, :, :1024].nbytes
    peak, container = peak_of(Encoding("cachegen", 0), *narrow)
    body = unpack(container).sections[SECTION_DELTA_STREAMS]
    directory = np.frombuffer(body, "<u4", 2 * SHAPE.rows, 8).reshape(-1, 2)
    escapes = int(directory[:, 1].sum())

    assert escapes > kv[:, :, :1024].numel() / 3
    bound = DECODE_MEMORY * output_bytes + 4 * escapes + SLACK_BYTES
    assert peak <= bound, f"{peak / output_bytes:.2f} times the output"
