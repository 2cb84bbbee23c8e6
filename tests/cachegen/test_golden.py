"""Bytes that a release has written decode to the same tensors, and the same tensors encode to the same bytes."""

from pathlib import Path

import pytest
import torch

from cachegen.codecs.transform import SECTION_CODEBOOK_ENTRIES
from cachegen.container import unpack
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import load_profile

FOLDER = Path(__file__).parent.parent / "golden" / "v1"
PROFILE = "profile.safetensors"
WITH_CODEBOOK = "profile-codebook.safetensors"
# As in make.py: the transform's step changes within the chunk.
TOKENS_BEHIND = 200
# name, encoding, profile
CASES = [(str(encoding), encoding, PROFILE) for encoding in ENCODINGS]
CASES += [(f"codebook-{level}", Encoding("transform", level), WITH_CODEBOOK) for level in (0, 3, 7)]
each_case = pytest.mark.parametrize(("name", "encoding", "profile_file"), CASES, ids=[name for name, *_ in CASES])


def golden(name, tokens, kind):
    return (FOLDER / f"{name}-t{tokens}.{kind}").read_bytes()


@pytest.mark.parametrize("tokens", [1, 23])
@each_case
def test_golden_bytes_decode_to_the_golden_tensor(name, encoding, profile_file, tokens):
    decoded = decode_chunk(golden(name, tokens, "encoded"), load_profile(FOLDER / profile_file))

    assert decoded.encoding == encoding
    if encoding.codec == "transform":
        # products of floats are the machine's own, see docs/format.md
        expected = torch.frombuffer(bytearray(golden(name, tokens, "decoded")), dtype=torch.bfloat16)
        torch.testing.assert_close(decoded.kv.flatten(), expected, rtol=2**-6, atol=0.1)
        return
    assert decoded.kv.view(torch.uint8).numpy().tobytes() == golden(name, tokens, "decoded")


@pytest.mark.parametrize("tokens", [1, 23])
@each_case
def test_golden_chunk_encodes_to_the_golden_bytes(name, encoding, profile_file, tokens):
    profile = load_profile(FOLDER / profile_file)
    # all are of the same two chunks
    source = decode_chunk(golden("raw", tokens, "encoded"), load_profile(FOLDER / PROFILE))
    identity = unpack(golden(name, tokens, "encoded")).identity

    again = encode_chunk(source.kv, encoding, identity, profile, TOKENS_BEHIND)
    assert again == golden(name, tokens, "encoded")


def test_golden_bytes_cover_every_profile_and_the_codebooks_entries():
    profiles = {path.name: load_profile(path) for path in FOLDER.glob("*.safetensors")}

    assert set(profiles) == {PROFILE, WITH_CODEBOOK}
    assert profiles[PROFILE].tables.transform.codebook is None
    for path in FOLDER.glob("*.encoded"):
        container = unpack(path.read_bytes())
        of_codebook = path.name.startswith("codebook")
        assert container.identity.profile_hash == profiles[WITH_CODEBOOK if of_codebook else PROFILE].hash
        assert (SECTION_CODEBOOK_ENTRIES in container.sections) == of_codebook
