from pathlib import Path

import pytest
import torch

from cachegen.encoding import ENCODINGS, Encoding
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import load_profile

FOLDER = Path(__file__).parent.parent / "golden" / "v1"
PROFILE = FOLDER / "profile.safetensors"
# As in make.py: the transform's step changes within the chunk.
TOKENS_BEHIND = 200


def golden(encoding, tokens, kind):
    return (FOLDER / f"{encoding}-t{tokens}.{kind}").read_bytes()


@pytest.mark.parametrize("tokens", [1, 23])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_golden_bytes_decode_to_the_golden_tensor(encoding, tokens):
    decoded = decode_chunk(golden(encoding, tokens, "encoded"), load_profile(PROFILE))

    assert decoded.encoding == encoding
    if encoding.codec == "transform":
        # products of floats are the machine's own, see docs/format.md
        expected = torch.frombuffer(bytearray(golden(encoding, tokens, "decoded")), dtype=torch.bfloat16)
        torch.testing.assert_close(decoded.kv.flatten(), expected, rtol=2**-6, atol=0.1)
        return
    assert decoded.kv.view(torch.uint8).numpy().tobytes() == golden(encoding, tokens, "decoded")


@pytest.mark.parametrize("tokens", [1, 23])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_golden_chunk_encodes_to_the_golden_bytes(encoding, tokens):
    profile = load_profile(PROFILE)
    source = decode_chunk(golden(Encoding("raw"), tokens, "encoded"), profile)

    again = encode_chunk(source.kv, encoding, source.identity, profile, TOKENS_BEHIND)
    assert again == golden(encoding, tokens, "encoded")
