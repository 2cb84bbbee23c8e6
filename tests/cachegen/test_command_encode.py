"""encode and decode: from text and from tensors, to containers and back."""

import os
import stat

import pytest
import torch
from checks import make_chunk, make_profile, same_bits
from safetensors.torch import load_file, save_file

from cachegen import calculate_kv, load_model, save_profile
from cachegen.cli import main
from cachegen.codecs.transform import SECTION_EXACT_TOKENS
from cachegen.container import unpack
from cachegen.pipeline import context_identities
from cachegen.profile_cache import profile_path

KV = make_chunk(tokens=12)


@pytest.fixture
def kv_file(tmp_path):
    path = tmp_path / "kv.safetensors"
    save_file({"kv": KV}, path)
    return path


def encode_text(text_file, model_files, output, *more):
    arguments = [
        "--model",
        str(model_files.folder),
        "--profile",
        str(model_files.profile_file),
        "--chunk-tokens",
        "200",
    ]
    return main(["encode", "--text", str(text_file), "-o", str(output), *arguments, *more])


def test_a_text_becomes_one_container_a_chunk_under_its_content_keys(text_file, model_files, tmp_path, capsys):
    output = tmp_path / "context"
    assert encode_text(text_file, model_files, output, "--encoding", "transform-2") == 0

    files = sorted(output.iterdir())
    assert [path.name for path in files] == ["chunk-0000.kvc", "chunk-0001.kvc", "chunk-0002.kvc"]
    containers = [unpack(path.read_bytes()) for path in files]
    assert [container.layout.num_tokens for container in containers] == [200, 200, 100]
    model = load_model(model_files.folder)
    token_ids = model.tokenize(text_file.read_text(encoding="utf-8"))
    expected = context_identities(token_ids, 200, model.fingerprint, model_files.profile.hash)
    assert [container.identity for container in containers] == [identity for _, identity in expected]
    total = sum(path.stat().st_size for path in files)
    assert (
        f"500 tokens as transform-2: {total:,} bytes, {8 * total / (500 * 4 * 16):.3f} bits" in capsys.readouterr().out
    )


def test_a_text_in_an_encoding_without_tables_needs_no_profile(text_file, model_files, tmp_path):
    output = tmp_path / "context"
    command = ["encode", "--text", str(text_file), "--model", str(model_files.folder), "--encoding", "raw"]
    assert main([*command, "-o", str(output)]) == 0

    [container] = [unpack(path.read_bytes()) for path in output.iterdir()]
    assert container.identity.profile_hash == bytes(32)


def test_decoding_gives_the_models_own_cache_back(text_file, model_files, tmp_path, capsys):
    encode_text(text_file, model_files, tmp_path / "context", "--encoding", "raw")
    decoded = tmp_path / "decoded.safetensors"
    assert main(["decode", str(tmp_path / "context/chunk-0001.kvc"), "-o", str(decoded)]) == 0

    model = load_model(model_files.folder)
    cache = calculate_kv(model, text_file.read_text(encoding="utf-8"), 200)
    assert same_bits(load_file(decoded)["kv"], cache.chunk(200, 400))
    # bfloat16 on processors that multiply it natively
    dtype = str(model.dtype).removeprefix("torch.")
    assert f"2 x 2 x 200 x 2 x 8 {dtype}, decoded from raw" in capsys.readouterr().out


def test_decoding_finds_the_profile_in_the_cache_folder(text_file, model_files, tmp_path, cache_folder, capsys):
    encode_text(text_file, model_files, tmp_path / "context", "--encoding", "cachegen-1")
    command = ["decode", str(tmp_path / "context/chunk-0000.kvc"), "-o"]
    assert main([*command, str(tmp_path / "kv.safetensors")]) == 2
    assert f"needs profile {model_files.profile.hash.hex()}" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "kv.safetensors"), "--profile", str(model_files.profile_file)]) == 0

    (cache_folder / "profiles").mkdir(parents=True)
    save_profile(model_files.profile, profile_path(model_files.profile.model_fingerprint, transform=True))
    assert main([*command, str(tmp_path / "found.safetensors")]) == 0
    found, named = (load_file(tmp_path / f"{stem}.safetensors")["kv"] for stem in ("found", "kv"))
    assert same_bits(found, named)


def test_a_tensor_of_a_file_comes_back_exactly(kv_file, tmp_path):
    assert main(["encode", "--kv", str(kv_file), "--encoding", "raw", "-o", str(tmp_path / "a.kvc")]) == 0
    assert main(["decode", str(tmp_path / "a.kvc"), "-o", str(tmp_path / "back.safetensors")]) == 0
    assert same_bits(load_file(tmp_path / "back.safetensors")["kv"], KV)


def test_a_tensor_of_a_file_is_known_by_its_content(kv_file, tmp_path):
    other = tmp_path / "other.safetensors"
    save_file({"kv": make_chunk(tokens=12, seed=5)}, other)
    identities = []
    for place, source in enumerate((kv_file, kv_file, other)):
        output = tmp_path / f"{place}.kvc"
        main(["encode", "--kv", str(source), "--encoding", "quant8", "-o", str(output)])
        identities.append(unpack(output.read_bytes()).identity)

    assert identities[0] == identities[1]
    assert identities[0].chunk_key != identities[2].chunk_key
    assert identities[0].model_fingerprint == bytes(16)
    assert identities[0].profile_hash == bytes(32)
    assert (identities[0].chunk_index, identities[0].first_token) == (0, 0)


def test_a_decoded_file_keeps_its_place_when_it_is_encoded_again(text_file, model_files, tmp_path):
    encode_text(text_file, model_files, tmp_path / "context", "--encoding", "raw")
    main(["decode", str(tmp_path / "context/chunk-0002.kvc"), "-o", str(tmp_path / "kv.safetensors")])
    again = ["encode", "--kv", str(tmp_path / "kv.safetensors"), "--encoding", "transform-0"]
    assert main([*again, "--profile", str(model_files.profile_file), "-o", str(tmp_path / "again.kvc")]) == 0

    identity = unpack((tmp_path / "again.kvc").read_bytes()).identity
    assert (identity.chunk_index, identity.first_token) == (2, 400)
    assert identity.model_fingerprint == model_files.profile.model_fingerprint
    assert identity.profile_hash == model_files.profile.hash


def test_a_tensor_without_metadata_is_coded_as_its_text_was_once_its_place_is_told(
    text_file, model_files, tmp_path, capsys
):
    encode_text(text_file, model_files, tmp_path / "context", "--encoding", "transform-2")
    encode_text(text_file, model_files, tmp_path / "exact", "--encoding", "raw")
    main(["decode", str(tmp_path / "exact/chunk-0001.kvc"), "-o", str(tmp_path / "decoded.safetensors")])
    bare = tmp_path / "bare.safetensors"
    save_file(load_file(tmp_path / "decoded.safetensors"), bare)
    command = ["encode", "--kv", str(bare), "--encoding", "transform-2", "--profile", str(model_files.profile_file)]
    place = ["--first-token", "200", "--tokens-behind", "100"]
    assert main([*command, *place, "-o", str(tmp_path / "told.kvc")]) == 0
    assert main([*command, "-o", str(tmp_path / "untold.kvc")]) == 0

    names = ("context/chunk-0001.kvc", "told.kvc", "untold.kvc")
    text, told, untold = (unpack((tmp_path / name).read_bytes()) for name in names)
    assert told.identity.first_token == 200
    assert told.sections == text.sections
    assert untold.identity.first_token == 0
    assert untold.sections != told.sections
    # taken for the start of a context, it keeps that one's first tokens exact
    assert len(untold.sections[SECTION_EXACT_TOKENS]) > len(told.sections[SECTION_EXACT_TOKENS])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (["--first-token", "-1"], "first_token is -1"),
        (["--first-token", str(2**63)], f"first_token is {2**63}"),
        (["--tokens-behind", "-1"], "tokens_behind is -1"),
        (["--tokens-behind", str(2**60)], f"tokens_behind is {2**60}"),
    ],
)
def test_a_place_that_no_context_has_is_refused(place, message, kv_file, tmp_path, capsys):
    command = ["encode", "--kv", str(kv_file), "--encoding", "raw", *place]
    assert main([*command, "-o", str(tmp_path / "a.kvc")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.kvc").exists()


def test_a_file_of_another_model_is_not_encoded_with_this_ones_profile(text_file, model_files, tmp_path, capsys):
    encode_text(text_file, model_files, tmp_path / "context", "--encoding", "raw")
    main(["decode", str(tmp_path / "context/chunk-0000.kvc"), "-o", str(tmp_path / "kv.safetensors")])
    foreign = tmp_path / "foreign.safetensors"
    save_profile(make_profile(2, 2, 8), foreign)
    command = [
        "encode",
        "--kv",
        str(tmp_path / "kv.safetensors"),
        "--encoding",
        "cachegen-0",
        "--profile",
        str(foreign),
    ]

    assert main([*command, "-o", str(tmp_path / "x.kvc")]) == 2
    assert model_files.profile.model_fingerprint.hex() in capsys.readouterr().err
    assert not (tmp_path / "x.kvc").exists()


@pytest.mark.parametrize(
    ("content", "metadata", "message"),
    [
        (b"no tensors", None, "not a safetensors file"),
        ({"keys": torch.zeros(1)}, None, "no tensor 'kv'; it has 'keys'"),
        ({"kv": torch.zeros(2, 3)}, None, "shape (2, 3)"),
        ({"kv": torch.zeros(1, 2, 3, 1, 4, dtype=torch.int8)}, None, "dtype torch.int8"),
        ({"kv": KV}, {"first_token": "-1"}, "first_token is '-1'"),
        ({"kv": KV}, {"model_fingerprint": "abcd"}, "model_fingerprint has 2 bytes"),
    ],
)
def test_a_file_that_holds_no_chunk_is_refused_by_name(content, metadata, message, tmp_path, capsys):
    path = tmp_path / "bad.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save_file(content, path, metadata)
    assert main(["encode", "--kv", str(path), "--encoding", "raw", "-o", str(tmp_path / "x.kvc")]) == 2

    shown = capsys.readouterr().err
    assert str(path) in shown
    assert message in shown


def test_a_tensor_with_a_nan_is_refused_at_its_place(tmp_path, capsys):
    kv = KV.clone()
    kv[1, 0, 3, 0, 2] = float("nan")
    save_file({"kv": kv}, tmp_path / "nan.safetensors")
    command = ["encode", "--kv", str(tmp_path / "nan.safetensors"), "--encoding", "quant8"]
    assert main([*command, "-o", str(tmp_path / "x.kvc")]) == 2
    assert "layer 1, K/V K, token 3, head 0, dim 2" in capsys.readouterr().err


def test_an_output_is_replaced_only_on_request(kv_file, text_file, model_files, tmp_path, capsys):
    output = tmp_path / "a.kvc"
    output.write_bytes(b"precious")
    command = ["encode", "--kv", str(kv_file), "--encoding", "quant8", "-o", str(output)]
    assert main(command) == 2
    assert output.read_bytes() == b"precious"
    assert "is there already; --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert unpack(output.read_bytes()).layout.num_tokens == 12


def test_a_folder_of_chunks_is_replaced_only_on_request(text_file, model_files, tmp_path, capsys):
    folder = tmp_path / "folder"
    assert encode_text(text_file, model_files, folder, "--encoding", "raw") == 0
    raw = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert encode_text(text_file, model_files, folder, "--encoding", "quant8") == 2
    assert "is there already and holds chunk-0000.kvc; --overwrite replaces it" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == raw

    text_file.write_text("Shorter than one chunk.", encoding="utf-8")
    assert encode_text(text_file, model_files, folder, "--encoding", "quant8", "--overwrite") == 0
    [chunk] = folder.iterdir()
    assert unpack(chunk.read_bytes()).encoding.codec == "quant8"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "text.txt"]


def test_a_folder_with_anything_but_chunks_is_never_replaced(text_file, model_files, tmp_path, capsys):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "letters.txt").write_text("precious", encoding="utf-8")
    assert encode_text(text_file, model_files, folder, "--encoding", "raw", "--overwrite") == 2
    assert f"{folder}: holds letters.txt, which is no chunk-*.kvc" in capsys.readouterr().err
    assert (folder / "letters.txt").read_text(encoding="utf-8") == "precious"


def test_an_empty_output_is_as_good_as_none(kv_file, text_file, model_files, tmp_path):
    """As ``mktemp`` makes them."""
    container, tensor, folder = tmp_path / "a.kvc", tmp_path / "kv", tmp_path / "folder"
    container.touch()
    tensor.touch()
    folder.mkdir(mode=0o700)
    assert main(["encode", "--kv", str(kv_file), "--encoding", "raw", "-o", str(container)]) == 0
    assert main(["decode", str(container), "-o", str(tensor)]) == 0
    assert same_bits(load_file(tensor)["kv"], KV)
    assert encode_text(text_file, model_files, folder, "--encoding", "raw") == 0
    assert len(list(folder.iterdir())) == 3
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_pipe_is_no_output(kv_file, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    command = ["encode", "--kv", str(kv_file), "--encoding", "raw", "-o", str(tmp_path / "pipe")]
    assert main([*command, "--overwrite"]) == 2
    assert f"{tmp_path / 'pipe'}: is a device or a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["folder", "missing/a.kvc"])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(output, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    # the input is not there either, and is not looked at
    assert main(["encode", "--kv", "none", "--encoding", "raw", "-o", str(tmp_path / output)]) == 2
    assert str(tmp_path / output) in capsys.readouterr().err


def test_an_interrupted_write_leaves_nothing(kv_file, text_file, model_files, tmp_path, monkeypatch):
    def interrupt(_descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    before = sorted(tmp_path.iterdir())
    assert main(["encode", "--kv", str(kv_file), "--encoding", "raw", "-o", str(tmp_path / "a.kvc")]) == 130
    assert encode_text(text_file, model_files, tmp_path / "context", "--encoding", "raw") == 130
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--encoding", "zip"], "unknown encoding 'zip'"),
        (["--encoding", "raw", "--chunk-tokens", "0"], "--chunk-tokens is 0"),
        (["--encoding", "raw", "--model", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_flags_are_refused_by_name(more, message, text_file, tmp_path, capsys):
    assert main(["encode", "--text", str(text_file), "-o", str(tmp_path / "x"), *more]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), (b"\xff\xfe", "not UTF-8"), (b" \n", "no text")]
)
def test_a_text_that_is_none_is_refused_by_name(content, message, tmp_path, capsys):
    path = tmp_path / "bad.txt"
    if content is not None:
        path.write_bytes(content)
    assert main(["encode", "--text", str(path), "--encoding", "raw", "-o", str(tmp_path / "x")]) == 2
    shown = capsys.readouterr().err
    assert str(path) in shown
    assert message in shown


def test_a_text_without_an_end_is_refused(tmp_path, capsys):
    assert main(["encode", "--text", "/dev/zero", "--encoding", "raw", "-o", str(tmp_path / "x")]) == 2
    assert "/dev/zero: has more than 67,108,864 characters" in capsys.readouterr().err


def test_a_profile_of_another_model_is_refused_by_both_fingerprints(text_file, model_files, tmp_path, capsys):
    foreign = tmp_path / "foreign.safetensors"
    save_profile(make_profile(2, 2, 8), foreign)
    command = ["encode", "--text", str(text_file), "--model", str(model_files.folder), "--encoding", "cachegen-0"]
    assert main([*command, "--profile", str(foreign), "-o", str(tmp_path / "x")]) == 2
    shown = capsys.readouterr().err
    assert bytes(range(16)).hex() in shown
    assert model_files.profile.model_fingerprint.hex() in shown


@pytest.mark.parametrize("flag", ["--first-token", "--tokens-behind"])
def test_a_text_is_told_no_place(flag, text_file, tmp_path, capsys):
    command = ["encode", "--text", str(text_file), "--encoding", "raw", flag, "0", "-o", str(tmp_path / "out")]
    assert main(command) == 2
    assert f"{flag} goes with --kv" in capsys.readouterr().err


def test_flags_of_the_other_kind_of_input_are_refused_by_name(kv_file, tmp_path, capsys):
    output = ["-o", str(tmp_path / "out")]
    assert main(["encode", "--kv", str(kv_file), "--encoding", "raw", "--chunk-tokens", "4", *output]) == 2
    assert "--chunk-tokens goes with --text" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_refused_before_the_work(kv_file, capsys):
    assert main(["encode", "--kv", str(kv_file), "--encoding", "raw", "-o", "/proc/chunk.kvc"]) == 2
    assert "/proc/chunk.kvc: its folder takes no file" in capsys.readouterr().err
