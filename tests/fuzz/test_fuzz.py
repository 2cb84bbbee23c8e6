"""A fixed budget of coverage-guided fuzzing, and proof that it would notice; ``make fuzz`` runs longer."""

import random
import re
import subprocess
import sys
from pathlib import Path

import mutators
import numpy as np
import properties
import pytest
import seeds

from cachegen.codecs import CODECS
from cachegen.codecs.transform import SECTION_REFERENCES
from cachegen.container import unpack
from cachegen.errors import CachegenError, ChecksumError, FormatError
from cachegen.kernels import get_backend, numba_range, range_coder
from cachegen.pipeline import decode_chunk
from cachegen.profile import save_profile

FUZZ = Path(__file__).parent / "fuzz.py"
PROFILE_NAMES = ["without a codebook", "with one", "with references", "in stages"]
RUNS = {"container": 4_000, "profile": 250, "manifest": 10_000}


def flip(data, _limit):
    """A stand-in for libFuzzer's mutation: one byte set."""
    rng = random.Random(len(data))
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("kind", RUNS)
def test_a_fixed_number_of_mutations_finds_nothing(kind, tmp_path):
    pytest.importorskip("atheris", reason="is not built for this platform")
    command = [
        sys.executable,
        FUZZ,
        kind,
        tmp_path / "corpus",
        f"-runs={RUNS[kind]}",
        "-seed=1",
        "-print_final_stats=1",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    # a few more where the last mutation of an input is not the last run
    runs = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    assert RUNS[kind] <= int(runs[1]) < RUNS[kind] + 100
    assert len(list((tmp_path / "corpus").iterdir())) > len(list((tmp_path / "corpus").glob("seed-*")))


@pytest.mark.parametrize("data", seeds.containers(), ids=lambda data: f"{len(data)} bytes")
def test_seeds_hold_what_fuzzing_asks_of_every_input(data):
    properties.check_container(data)
    decode_chunk(data, seeds.profile_named_by(data))


@pytest.mark.parametrize("data", seeds.profiles(), ids=PROFILE_NAMES)
def test_profile_seeds_hold_what_fuzzing_asks_of_every_profile(data):
    properties.check_profile(data)


def test_seeds_have_chunks_whose_references_are_used():
    used = [
        data
        for data in seeds.containers()
        if (body := unpack(data).sections.get(SECTION_REFERENCES))
        and (np.frombuffer(body[-(len(body) // 5) :], "u1") > 2).any()
    ]

    assert len(used) > 8


def test_each_codec_with_a_backend_has_a_twin_on_the_reference():
    twins = properties.REFERENCE_CODECS
    assert twins.keys() == CODECS.keys()
    for name in ("cachegen", "transform"):
        assert twins[name]._backend is get_backend("reference")
        assert CODECS[name]._backend is get_backend("numba")
    assert twins["cachegen-repo"]._coder is range_coder
    assert CODECS["cachegen-repo"]._coder is numba_range


def test_mutations_reach_behind_the_checksums():
    rng = random.Random(0)
    stopped = 0
    for data in seeds.containers() * 3:
        try:
            mutated = mutators.mutate_container(data, 4096, rng, flip)
            decode_chunk(mutated, seeds.profile_named_by(mutated))
        except ChecksumError:
            stopped += 1
        except CachegenError:
            pass
    assert stopped < 0.1 * 3 * len(seeds.containers())


class Negating:
    """A codec whose tensors have the wrong sign."""

    def __init__(self, codec):
        self.uses_tables, self._decode = codec.uses_tables, codec.decode

    def decode(self, *arguments):
        return -self._decode(*arguments)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("cachegen-1", "cachegen"),
        ("cachegen-repo-1", "cachegen-repo"),
        ("transform-2", "transform"),
        ("codebook-3", "transform"),
        ("references-3", "transform"),
    ],
)
def test_backends_that_disagree_are_noticed(name, codec, monkeypatch):
    monkeypatch.setitem(properties.REFERENCE_CODECS, codec, Negating(CODECS[codec]))

    with pytest.raises(AssertionError, match="decode to different tensors"):
        properties.check_container((seeds.GOLDEN / f"{name}-t23.encoded").read_bytes())


@pytest.mark.parametrize("verdict", ["sound", "unsound"])
def test_range_coders_that_disagree_are_noticed(verdict, monkeypatch):
    data = (seeds.GOLDEN / "cachegen-repo-1-t23.encoded").read_bytes()
    properties.check_container(data)
    decode = range_coder.decode_row

    def wrong(coded, num_tokens, cdfs):
        if verdict == "unsound":
            raise FormatError("not what its symbols encode to")
        return decode(coded, num_tokens, cdfs) ^ 1

    monkeypatch.setattr(range_coder, "decode_row", wrong)
    with pytest.raises(AssertionError):
        properties.check_container(data)


@pytest.mark.parametrize("profile", seeds.PROFILES, ids=PROFILE_NAMES)
def test_a_profile_with_another_tensor_and_its_right_hash_gets_past_the_hash(profile, tmp_path):
    save_profile(profile, tmp_path / "profile")
    data = bytearray((tmp_path / "profile").read_bytes())
    data[-1] ^= 1

    assert properties.load_forged(bytes(data)).hash != profile.hash
    properties.check_profile(bytes(data))
