"""Bytes that a release has written decode to the same tensors, and the same tensors encode to the same bytes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cachegen.codecs.token_references import TABLE_OFFSETS
from cachegen.codecs.transform import SECTION_CODEBOOK_ENTRIES, SECTION_REFERENCES
from cachegen.container import unpack
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import load_profile

FOLDER = Path(__file__).parent.parent / "golden" / "v1"
PROFILE = "profile.safetensors"
WITH_CODEBOOK = "profile-codebook.safetensors"
WITH_REFERENCES = "profile-references.safetensors"
IN_STAGES = "profile-stages.safetensors"
SCHEMAS = {PROFILE: 3, WITH_CODEBOOK: 4, WITH_REFERENCES: 5, IN_STAGES: 6}
# As in make.py: the transform's step changes within the chunk.
TOKENS_BEHIND = 200
SOME_LEVELS = [Encoding("transform", level) for level in (0, 3, 7)]
# name, encoding, profile, tokens
CASES = [(str(encoding), encoding, PROFILE, tokens) for encoding in ENCODINGS for tokens in (1, 23)]
CASES += [(f"codebook-{each.level}", each, WITH_CODEBOOK, tokens) for each in SOME_LEVELS for tokens in (1, 23)]
CASES += [(f"references-{each.level}", each, WITH_REFERENCES, tokens) for each in SOME_LEVELS for tokens in (1, 23, 64)]
CASES += [(f"stages-{each.level}", each, IN_STAGES, tokens) for each in SOME_LEVELS for tokens in (1, 23)]
each_case = pytest.mark.parametrize(
    ("name", "encoding", "profile_file", "tokens"), CASES, ids=[f"{name}-t{tokens}" for name, _, _, tokens in CASES]
)


def golden(name, tokens, kind):
    return (FOLDER / f"{name}-t{tokens}.{kind}").read_bytes()


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


@each_case
def test_golden_chunk_encodes_to_the_golden_bytes(name, encoding, profile_file, tokens):
    profile = load_profile(FOLDER / profile_file)
    # all of so many tokens are of one chunk
    source = decode_chunk(golden("raw", tokens, "encoded"), load_profile(FOLDER / PROFILE))
    identity = unpack(golden(name, tokens, "encoded")).identity

    again = encode_chunk(source.kv, encoding, identity, profile, TOKENS_BEHIND)
    assert again == golden(name, tokens, "encoded")


def test_golden_bytes_cover_every_profile_the_codebooks_entries_and_references():
    profiles = {path.name: load_profile(path) for path in FOLDER.glob("*.safetensors")}

    assert set(profiles) == set(SCHEMAS)
    for name, profile in profiles.items():
        assert f'\\"schema\\": {SCHEMAS[name]}'.encode() in (FOLDER / name).read_bytes()
        assert (profile.tables.transform.codebook is not None) == (name != PROFILE)
        assert profile.tables.transform.table_reach == (name in (WITH_REFERENCES, IN_STAGES))
    kinds = {"codebook": WITH_CODEBOOK, "references": WITH_REFERENCES, "stages": IN_STAGES}
    for path in FOLDER.glob("*.encoded"):
        container = unpack(path.read_bytes())
        named = kinds.get(path.name.split("-")[0], PROFILE)
        assert container.identity.profile_hash == profiles[named].hash
        assert (SECTION_CODEBOOK_ENTRIES in container.sections) == (named != PROFILE)
        assert (SECTION_REFERENCES in container.sections) == (named in (WITH_REFERENCES, IN_STAGES))


@pytest.mark.parametrize("level", [0, 3, 7])
def test_golden_bytes_of_a_chunk_that_repeats_have_references_that_are_used(level):
    body = unpack(golden(f"references-{level}", 64, "encoded")).sections[SECTION_REFERENCES]
    coded = len(body) // 5
    first, second = np.frombuffer(body, "<u2", 2 * coded).reshape(2, coded)
    modes = np.frombuffer(body, "<u1", coded, 4 * coded) // len(TABLE_OFFSETS)

    assert (first < np.arange(coded)).sum() > coded / 3
    assert (second < np.arange(coded)).any()
    assert len(set(modes.tolist())) > 3
