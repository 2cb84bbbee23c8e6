"""inspect: what a container is, and where it is damaged."""

import json
import os
import struct

import pytest
from checks import IDENTITY, identity_of, make_chunk, profile_of, reseal, with_field

from cachegen import ENCODINGS, Encoding, ProfileBuilder, encode_chunk, save_profile
from cachegen.cli import main
from cachegen.container import MAX_CONTAINER_BYTES

KV = make_chunk()
PROFILE = profile_of(KV)
CODED = encode_chunk(KV, Encoding("cachegen", 1), identity_of(PROFILE), PROFILE)


@pytest.fixture
def inspect(tmp_path, capsys):
    """Inspect bytes; gives exit status and what was printed, as JSON if asked."""
    profile_file = tmp_path / "profile.safetensors"
    save_profile(PROFILE, profile_file)

    def run(data, *, as_json=True, profile=True):
        path = tmp_path / "chunk.kvc"
        path.write_bytes(data)
        flags = ["--json"] * as_json + ["--profile", str(profile_file)] * profile
        status = main(["inspect", str(path), *flags])
        shown = capsys.readouterr().out
        return status, json.loads(shown) if as_json else shown

    return run


def outcomes(found):
    return {check["name"]: check["outcome"] for check in found["checks"]}


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_a_sound_container_passes_every_check_and_its_sections_have_names(encoding, inspect):
    data = encode_chunk(KV, encoding, identity_of(PROFILE), PROFILE)
    status, found = inspect(data)

    assert status == 0
    assert not found["damaged"]
    assert set(outcomes(found).values()) == {"ok"}
    assert (found["codec"], found["level"]) == (encoding.codec, encoding.level)
    assert found["shape"] == {"num_layers": 3, "num_kv_heads": 2, "head_dim": 5}
    assert (found["dtype"], found["tokens"], found["elements"]) == ("bfloat16", 23, KV.numel())
    assert found["bits_per_element"] == pytest.approx(8 * len(data) / KV.numel())
    assert found["ratio_fp16"] == pytest.approx(16 / found["bits_per_element"])
    assert found["identity"]["profile_hash"] == PROFILE.hash.hex()
    assert (found["identity"]["chunk_index"], found["identity"]["first_token"]) == (3, 1536)
    header_bytes = 152 + 32 * len(found["sections"])
    assert sum(section["num_bytes"] for section in found["sections"]) == len(data) - header_bytes
    assert all(section["name"] != "unknown" for section in found["sections"])


def test_the_explanation_says_all_of_it_in_words(inspect):
    status, shown = inspect(CODED, as_json=False)
    assert status == 0
    for fact in (
        *("codec    cachegen, level 1", "3 layers, 2 KV heads, head dim 5", "bfloat16", "23, at 1536..1558"),
        *("anchor scales", "delta streams", "bits per element", "times smaller than fp16", PROFILE.hash.hex()),
        *(IDENTITY.chunk_key.hex(), "ok       profile: at hand", "ok       decode"),
    ):
        assert fact in shown


def test_without_its_profile_a_container_is_not_called_damaged(inspect):
    status, found = inspect(CODED, profile=False)
    assert status == 0
    assert outcomes(found)["profile"] == outcomes(found)["decode"] == "skipped"


def test_with_another_profile_than_its_own_a_container_is_not_called_damaged(inspect):
    builder = ProfileBuilder(PROFILE.shape, PROFILE.model_fingerprint)
    builder.add(make_chunk(tokens=70, seed=9))
    other = builder.build()
    status, found = inspect(encode_chunk(KV, Encoding("cachegen", 1), identity_of(other), other))

    assert status == 0
    assert outcomes(found)["profile"] == outcomes(found)["decode"] == "skipped"
    [detail] = [check["detail"] for check in found["checks"] if check["name"] == "profile"]
    assert other.hash.hex() in detail
    assert PROFILE.hash.hex() in detail


def test_a_damaged_section_is_named_and_the_others_are_checked_all_the_same(inspect):
    data = bytearray(CODED)
    at = struct.unpack_from("<Q", data, 144 + 32 + 8)[0]  # of the second section
    data[at] ^= 1
    status, found = inspect(bytes(data))

    assert status == 2
    assert [name for name, outcome in outcomes(found).items() if outcome == "failed"] == ["section 5, anchor streams"]
    assert outcomes(found)["section 7, delta streams"] == "ok"
    assert outcomes(found)["decode"] == "skipped"
    assert f"section 5 at offset {at}: checksum" in json.dumps(found["checks"])


def test_a_damaged_header_is_shown_for_what_it_is_worth(inspect):
    data = bytearray(CODED)
    data[48] ^= 1  # tokens
    status, shown = inspect(bytes(data), as_json=False)
    assert status == 2
    assert "the header's checksum does not hold" in shown
    assert "22, at 1536" in shown
    assert "failed   header: container header: checksum" in shown


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "container has 0 bytes"),
        (b"GIF89a" + bytes(300), "magic at offset 0 is 474946383961"),
        (with_field(CODED, 8, "H", 9), "version at offset 8 is 9"),
        (with_field(CODED, 16, "16s", b"zip"), "unknown codec 'zip'"),
        (with_field(CODED, 33, "B", 77), "dtype code at offset 33 is 77"),
        (CODED[:-3], "pass the end"),
        (CODED + b"more", "its sections end at offset"),
        (CODED[:250], "its header has 280"),
    ],
)
def test_every_damage_is_explained_by_the_check_that_finds_it(data, message, inspect):
    status, found = inspect(data)
    assert status == 2
    assert found["damaged"]
    assert any(message in check["detail"] for check in found["checks"] if check["outcome"] == "failed")


def test_a_forged_body_under_right_checksums_fails_to_decode(inspect):
    data = bytearray(CODED)
    at, length = struct.unpack_from("<QQ", data, 144 + 32 + 8)
    data[at : at + 4] = struct.pack("<I", 3)  # lanes: no power of two
    assert length > 4
    status, found = inspect(reseal(bytes(data)))
    assert status == 2
    assert [name for name, outcome in outcomes(found).items() if outcome == "failed"] == ["decode"]


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path, capsys):
    assert main(["inspect", str(tmp_path / "none.kvc")]) == 2
    assert str(tmp_path / "none.kvc") in capsys.readouterr().err


@pytest.mark.parametrize("command", [["inspect"], ["decode", "-o", "x"]], ids=["inspect", "decode"])
def test_what_need_not_end_is_refused_by_name(command, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        assert main([*command, str(path)]) == 2
        assert f"{path}: is a device or a pipe" in capsys.readouterr().err


def test_a_file_larger_than_any_container_is_refused_unread(tmp_path, capsys):
    with (tmp_path / "x.kvc").open("wb") as file:
        file.truncate(MAX_CONTAINER_BYTES + 1)
    assert main(["inspect", str(tmp_path / "x.kvc")]) == 2
    assert "x.kvc: has 68,719,476,737 bytes, at most 68,719,476,736" in capsys.readouterr().err


def test_decoding_a_damaged_container_names_file_and_section_and_leaves_nothing(tmp_path, capsys):
    (tmp_path / "x.kvc").write_bytes(CODED[:-1] + bytes([CODED[-1] ^ 1]))
    assert main(["decode", str(tmp_path / "x.kvc"), "-o", str(tmp_path / "kv.safetensors")]) == 2
    assert f"{tmp_path / 'x.kvc'}: section 7" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["x.kvc"]
