"""A small file cannot make its reader allocate what it claims: shown under a limit that the kernel enforces."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from checks import IDENTITY, identity_of, make_chunk, make_profile, with_field, with_section
from safetensors.numpy import save_file

from cachegen.codecs import CODECS
from cachegen.codecs.cachegen import SECTION_ANCHOR_SCALES
from cachegen.codecs.token_references import no_references, write_references
from cachegen.codecs.transform import SECTION_CODEBOOK_ENTRIES, SECTION_REFERENCES, SECTION_TOKEN_STEPS
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.kernels.anchor import num_groups
from cachegen.kv import MAX_CHUNK_TOKENS
from cachegen.pipeline import encode_chunk
from cachegen.profile import save_profile

ROOT = Path(__file__).parent.parent.parent
LAYERS, HEADS, DIM = 2, 4, 32
PROFILE = make_profile(LAYERS, HEADS, DIM)
ROOM_BYTES = 64 << 20

# Reads each file under an address-space limit and prints a line for it: the error, or what was returned.
READER = """
import resource, sys
from pathlib import Path
from cachegen import decode_chunk, load_profile, warm_up
from cachegen.errors import CachegenError
from cachegen.manifest import unpack_manifest

room, folder = int(sys.argv[1]), Path(sys.argv[2])
warm_up()
profile = load_profile(folder / "the profile")
readers = {
    "containers": lambda path: decode_chunk(path.read_bytes(), profile),
    "profiles": load_profile,
    "manifests": lambda path: unpack_manifest(path.read_bytes()),
}
pages = int(Path("/proc/self/statm").read_text().split()[0])
bound = pages * resource.getpagesize() + room
resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
for kind, read in readers.items():
    for path in sorted((folder / kind).iterdir()):
        try:
            result = f"returned {type(read(path)).__name__}"
        except CachegenError as error:
            result = f"{type(error).__name__}: {error}"
        except BaseException as error:
            result = f"FOREIGN {type(error).__name__}"
        print(f"{kind}/{path.name}\\t{result}")
"""


def claiming_containers():
    """Small containers whose headers claim all the tokens, or all the elements, that the format allows."""
    forged = {}
    # as many scales as the claim implies, so that the streams are what has to be refused
    scales = bytes(2 * 2 * LAYERS * num_groups(MAX_CHUNK_TOKENS))
    references = write_references(no_references(1, MAX_CHUNK_TOKENS), MAX_CHUNK_TOKENS)
    # tokens that the profile was made from, so that the transform has something to code
    kv = make_chunk(LAYERS, 60, HEADS, DIM, seed=1)[:, :, :21]
    for encoding in ENCODINGS:
        honest = encode_chunk(kv, encoding, identity_of(PROFILE), PROFILE)
        # 2**29 elements: a gibibyte of bfloat16, two as float32
        forged[f"{encoding}"] = with_field(honest, 48, "I", MAX_CHUNK_TOKENS)
        if encoding.codec == "cachegen":
            forged[f"{encoding} with scales"] = with_section(forged[f"{encoding}"], SECTION_ANCHOR_SCALES, scales)
        if encoding.codec == "transform":
            with_entries = with_section(forged[f"{encoding}"], SECTION_CODEBOOK_ENTRIES, bytes(2 * MAX_CHUNK_TOKENS))
            with_references = with_section(with_entries, SECTION_REFERENCES, references)
            # of one part, and of two
            for name, pair in (("steps", b"\0\0"), ("strong steps", b"\0\5")):
                steps = pair * (MAX_CHUNK_TOKENS // 2)
                forged[f"{encoding} with {name}"] = with_section(with_references, SECTION_TOKEN_STEPS, steps)
        if not CODECS[encoding.codec].uses_tables:
            # 2**33 elements; no profile's shape stands against it
            forged[f"{encoding} of every element"] = with_field(
                with_field(forged[f"{encoding}"], 36, "I", 8), 44, "I", 128
            )
    return forged


def claiming_profiles(folder):
    """Metadata that says more than the tensors hold."""
    made = folder / "the profile"
    with safetensors.safe_open(str(made), framework="numpy") as file:
        header = json.loads(file.metadata()["cachegen_profile"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    shapes = {
        "every head": {"num_layers": 4096, "num_kv_heads": 4096, "head_dim": 16_384},
        "many narrow heads": {"num_layers": 4096, "num_kv_heads": 4096, "head_dim": 1},
        "wide heads": {"num_layers": 4096, "num_kv_heads": 1, "head_dim": 16_384},
    }
    for name, shape in shapes.items():
        save_file(tensors, str(folder / "profiles" / name), {"cachegen_profile": json.dumps(header | {"shape": shape})})
    tensors["anchors.count"] = np.full_like(tensors["anchors.count"], 255)
    save_file(tensors, str(folder / "profiles" / "long runs"), {"cachegen_profile": json.dumps(header)})


def claiming_manifests():
    """Every token there can be, and texts that a parser could run away with."""
    sizes = {"num_tokens": 2**24, "chunk_tokens": 1, "num_layers": 1, "num_kv_heads": 1, "head_dim": 1}
    hashes = {"context_key": "00" * 32, "model_fingerprint": "00" * 16, "profile_hash": "00" * 32}
    return {
        "every token": json.dumps({"schema": 1, "dtype": "float32", "chunks": [], **hashes, **sizes}),
        "nesting": '{"schema":1,"dtype":' + "[" * 100_000,
        "names": "{" + ",".join(f'"f{index}":0' for index in range(100_000)) + "}",
    }


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """What a reader with 64 MiB to spare says of each hostile file."""
    folder = tmp_path_factory.mktemp("claims")
    for kind in ("containers", "profiles", "manifests"):
        (folder / kind).mkdir()
    save_profile(PROFILE, folder / "the profile")
    for name, data in claiming_containers().items():
        (folder / "containers" / name).write_bytes(data)
    large = encode_chunk(torch.zeros((1, 2, 1 << 15, 8, 256), dtype=torch.bfloat16), Encoding("raw"), IDENTITY, None)
    (folder / "containers" / "honest and larger than the limit").write_bytes(large)
    claiming_profiles(folder)
    for name, text in claiming_manifests().items():
        (folder / "manifests" / name).write_text(text)
    command = [sys.executable, "-c", READER, str(ROOM_BYTES), folder]
    # the limit is on addresses, of which each thread's allocator reserves as much as the whole room
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=True, env=environment)
    return dict(line.split("\t") for line in done.stdout.splitlines())


def of_kind(readings, kind):
    return {name: result for name, result in readings.items() if name.startswith(kind)}


def test_containers_that_claim_a_gibibyte_and_more_are_refused_before_it_is_allocated(readings):
    found = of_kind(readings, "containers")
    # an honest one runs into the limit: else the others would prove nothing
    assert found.pop("containers/honest and larger than the limit").startswith("FOREIGN")
    assert len(found) == len(claiming_containers())
    for name, result in found.items():
        assert result.startswith("FormatError: "), f"{name}: {result}"
        assert not name.endswith(("with scales", " steps")) or "too few for" in result


def test_profiles_that_claim_large_models_are_refused_before_anything_is_listed_by_it(readings):
    found = of_kind(readings, "profiles")
    assert len(found) == 4
    for name, result in found.items():
        assert result.startswith("FormatError: "), f"{name}: {result}"


def test_manifests_that_claim_every_token_are_refused_at_their_own_size(readings):
    found = of_kind(readings, "manifests")
    assert {name.split("/")[1]: result.split(":")[0] for name, result in found.items()} == {
        "every token": "FormatError",
        "nesting": "FormatError",
        "names": "VersionError",
    }
