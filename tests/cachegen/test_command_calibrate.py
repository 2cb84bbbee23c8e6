"""calibrate: a profile in a file, and what it is worth on text that it did not see."""

import copy

import pytest
import torch
from families import network_of, save_tiny_model

import cachegen.own_text
from cachegen import (
    ENCODINGS,
    LanguageModel,
    calculate_kv,
    calibration_texts,
    load_model,
    load_profile,
    store_kv,
)
from cachegen.cli import main
from cachegen.codecs import CODECS
from cachegen.commands import calibrate as calibrate_command
from cachegen.commands.calibrate import _warn
from cachegen.encoding import Encoding
from cachegen.held_out import HeldOutRow
from cachegen.held_out_text import held_out_text


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Two files to calibrate on; the model's own texts are short, for speed."""
    monkeypatch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
    paths = [tmp_path / f"{place}.txt" for place in range(2)]
    for path, text in zip(paths, calibration_texts(), strict=False):
        path.write_text(text, encoding="utf-8")
    return [str(path) for path in paths]


def test_every_level_of_every_codec_with_tables_is_checked_on_unseen_text(model_files, texts, tmp_path, capsys):
    output = tmp_path / "profile.safetensors"
    command = ["calibrate", "--model", str(model_files.folder), "-o", str(output), "--texts", *texts]
    assert main(command) == 0

    shown = capsys.readouterr().out
    profile = load_profile(output)
    assert f"{output}: {output.stat().st_size:,} bytes" in shown
    assert profile.hash.hex() in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    for encoding in ENCODINGS:
        assert (str(encoding) in rows) == CODECS[encoding.codec].uses_tables
    kl = [float(rows[f"transform-{level}"][2]) for level in (0, 7)]
    bits = [float(rows[f"transform-{level}"][0]) for level in (0, 7)]
    assert kl[0] <= kl[1]
    assert bits[0] > bits[1]


def test_a_text_that_was_calibrated_on_is_not_called_unseen(texts, model_files, tmp_path, capsys):
    output = tmp_path / "profile.safetensors"
    command = ["calibrate", "--model", str(model_files.folder), "-o", str(output), "--texts", *texts]
    assert main([*command, "--held-out", texts[1]]) == 2
    assert f"{texts[1]}: is one of --texts, so it was seen" in capsys.readouterr().err
    assert not output.exists()


def test_a_profile_measured_in_float32_serves_the_model_in_its_own_dtype(texts, model_files, tmp_path, monkeypatch):
    monkeypatch.setattr("cachegen.model.serving_dtype", lambda _device: torch.bfloat16)
    seen = []
    monkeypatch.setattr(calibrate_command, "_check", lambda model, profile, _text: seen.append((model, profile)))
    output = tmp_path / "profile.safetensors"
    files = ["--model", str(model_files.folder), "-o", str(output), "--texts", *texts]
    assert main(["calibrate", "--no-transform", "--dtype", "float32", *files]) == 0

    [(model, checked)] = seen
    served, profile = load_model(model_files.folder), load_profile(output)
    assert (model.dtype, served.dtype) == (torch.float32, torch.bfloat16)
    assert profile.model_fingerprint == served.fingerprint != model.fingerprint
    assert checked.hash == profile.hash
    kv = calculate_kv(served, "All work and no play.")
    assert store_kv(str(tmp_path / "store"), served, kv, ["cachegen-1"], profile)


def row(kl):
    return HeldOutRow(Encoding("transform", 0), 1, 1.0, 16.0, kl, 1.0, 0.0)


@pytest.mark.parametrize("kl", [4e-4, float("nan")])
def test_a_near_lossless_level_that_harms_more_is_warned_of(kl, capsys):
    _warn([row(kl)])
    assert f"warning: KL on held-out text is above 0.0003 nats: transform-0 {kl:.3g}; " in capsys.readouterr().err


def test_one_that_does_not_is_not(capsys):
    _warn([row(3e-4)])
    _warn([])
    assert capsys.readouterr().err == ""


def test_the_transform_can_be_left_out(model_files, texts, tmp_path, capsys):
    output = tmp_path / "profile.safetensors"
    command = ["calibrate", "--model", str(model_files.folder), "-o", str(output), "--no-transform", "--texts", *texts]
    assert main(command) == 0
    assert isinstance(load_profile(output).tables.transform, str)
    shown = capsys.readouterr().out
    assert "no transform:" in shown
    assert "transform-0" not in shown


def test_a_model_that_the_transform_refuses_gets_the_rest_and_the_reason(texts, tmp_path, capsys):
    network = copy.deepcopy(network_of("hunyuan_v1_dense"))
    network.config.max_position_embeddings = 512  # room for the check
    folder = save_tiny_model(tmp_path / "hunyuan", LanguageModel(network, None, "hunyuan"))
    output = tmp_path / "profile.safetensors"
    assert main(["calibrate", "--model", str(folder), "-o", str(output), "--texts", *texts]) == 0

    shown = capsys.readouterr().out
    [reason] = [line for line in shown.splitlines() if "no transform:" in line]
    assert "keys of layer 0 turn" in reason
    assert "cachegen-4" in shown
    assert load_profile(output).tables.anchors.rows == 4


def test_the_default_held_out_text_shares_no_line_with_the_calibration_texts():
    seen = {line for text in calibration_texts() for line in text.splitlines() if len(line) > 60}
    assert not seen & set(held_out_text().splitlines())


def test_a_held_out_text_that_is_too_short_is_said_to_be(model_files, texts, tmp_path, capsys):
    short = tmp_path / "short.txt"
    short.write_text("A few words.", encoding="utf-8")
    command = ["calibrate", "--model", str(model_files.folder), "--no-transform", "--held-out", str(short)]
    assert main([*command, "-o", str(tmp_path / "p.safetensors"), "--texts", *texts]) == 0
    assert "no held-out check: the text gives 12 tokens" in capsys.readouterr().out


def test_bad_input_is_refused_before_the_work(model_files, tmp_path, capsys):
    missing, there = tmp_path / "missing.txt", tmp_path / "there.safetensors"
    there.write_bytes(b"precious")
    command = ["calibrate", "--model", str(model_files.folder)]
    assert main([*command, "--texts", str(missing), "-o", str(tmp_path / "new.safetensors")]) == 2
    assert str(missing) in capsys.readouterr().err
    assert main([*command, "-o", str(there)]) == 2
    assert f"{there}: is there already" in capsys.readouterr().err
    assert there.read_bytes() == b"precious"


def test_texts_that_are_too_short_are_refused(model_files, text_file, tmp_path, capsys):
    text_file.write_text("Too short.", encoding="utf-8")
    command = ["calibrate", "--model", str(model_files.folder), "--texts", str(text_file)]
    assert main([*command, "-o", str(tmp_path / "p.safetensors")]) == 2
    assert "128 tokens" in capsys.readouterr().err


def small_model(place, max_tokens):
    network = copy.deepcopy(network_of("llama"))
    network.config.max_position_embeddings = max_tokens
    return save_tiny_model(place, LanguageModel(network, None, "small"))


def test_a_model_too_small_to_calibrate_is_refused_by_its_limit(texts, tmp_path, capsys):
    command = ["calibrate", "--model", str(small_model(tmp_path / "small", 100)), "--texts", *texts]
    assert main([*command, "-o", str(tmp_path / "p.safetensors")]) == 2
    assert "calibration needs 128 tokens of a text at least; small holds 100 in all" in capsys.readouterr().err


def test_a_small_model_is_checked_on_half_of_what_it_holds(texts, tmp_path, capsys):
    command = ["calibrate", "--model", str(small_model(tmp_path / "small", 200)), "--no-transform", "--texts", *texts]
    assert main([*command, "-o", str(tmp_path / "p.safetensors")]) == 0
    assert "On 100 tokens it did not see" in capsys.readouterr().out


def test_an_interrupted_calibration_leaves_nothing(model_files, texts, tmp_path, monkeypatch):
    def interrupt(_descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    before = sorted(tmp_path.iterdir())
    command = ["calibrate", "--model", str(model_files.folder), "--no-transform", "--texts", *texts]
    assert main([*command, "-o", str(tmp_path / "p.safetensors")]) == 130
    assert sorted(tmp_path.iterdir()) == before
