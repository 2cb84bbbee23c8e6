"""Decoding one chunk takes at most 1.25 times its output beside the output, as the kernel counts it."""

import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk

from cachegen.benchmark.peak_memory import decode_peak_bytes
from cachegen.codecs.base import DECODE_MEMORY
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
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    builder.add(kv)
    profile = builder.build()
    save_profile(profile, folder / "profile")
    return folder, kv, profile


@pytest.mark.parametrize("encoding", FINEST, ids=str)
def test_decoding_takes_at_most_a_quarter_more_than_its_output_again(encoding, contexts):
    folder, kv, profile = contexts
    paths = {tokens: folder / f"{encoding}-{tokens}" for tokens in (20, 1024)}
    for tokens, path in paths.items():
        path.write_bytes(encode_chunk(kv[:, :, :tokens], encoding, identity_of(profile), profile, 0))
    output_bytes = kv[:, :, :1024].nbytes
    peak = decode_peak_bytes(paths[1024], paths[20], folder / "profile")

    assert peak is not None
    # the streams as read from the file are part of it
    assert peak <= DECODE_MEMORY * output_bytes + SLACK_BYTES, f"{peak / output_bytes:.2f} times the output"
