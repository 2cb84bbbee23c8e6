"""The commands from end to end on models of several families, as a user has them on disk."""

import copy
import json

import pytest
import torch
from families import network_of, save_tiny_model
from safetensors.torch import load_file

import cachegen.own_text
from cachegen import LanguageModel, calculate_kv, calibration_texts, load_model
from cachegen.cli import main

MAX_TOKENS = 512
CHUNK_TOKENS = 100
ENCODING = "transform-0"
TEXT = "The quick brown fox jumps over the lazy dog, again and again. " * 20


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text", "qwen2", "llama"])
def test_calibrate_encode_inspect_decode_and_bench_follow_each_other(family, tmp_path, monkeypatch, capsys):
    """Without rotary embeddings, with a sliding window, and with grouped queries."""
    monkeypatch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
    files = ("model", "texts.txt", "text.txt", "m.profile", "chunks", "kv.safetensors", "out.json")
    folder, texts, text, profile, chunks, decoded, output = (tmp_path / name for name in files)
    save_with_room(family, folder)
    texts.write_text(calibration_texts()[0], encoding="utf-8")
    text.write_text(TEXT[:300], encoding="utf-8")
    model = ["--model", str(folder)]

    assert main(["calibrate", *model, "--texts", str(texts), "-o", str(profile)]) == 0
    assert "no transform:" not in capsys.readouterr().out

    used = ["--profile", str(profile)]
    encode = ["encode", "--text", str(text), *model, *used, "--chunk-tokens", str(CHUNK_TOKENS)]
    assert main([*encode, "--encoding", ENCODING, "-o", str(chunks)]) == 0
    names = sorted(chunks.iterdir())
    assert len(names) == 3
    assert main(["inspect", str(names[1]), *used]) == 0
    assert "ok       decode" in capsys.readouterr().out
    assert main(["decode", str(names[1]), *used, "-o", str(decoded)]) == 0
    own = calculate_kv(load_model(folder), TEXT[:300], CHUNK_TOKENS).chunk(CHUNK_TOKENS, 2 * CHUNK_TOKENS).float()
    error = load_file(decoded)["kv"].float() - own
    assert error.square().mean() < 0.01 * own.square().mean()

    text.write_text(TEXT, encoding="utf-8")
    assert main(["bench", "--text", str(text), *model, *used, "--codecs", ENCODING, "--json", str(output)]) == 0
    result = json.loads(output.read_text(encoding="utf-8"))
    assert (result["tokens"], result["refused"]) == (MAX_TOKENS // 2, [])
    [row] = result["rows"]
    assert row["bits_per_element"] < 16
    assert row["reasons"] == {}


def save_with_room(family, folder):
    """Save a family's model with room for a context and what is predicted behind it."""
    network = network_of(family)
    config = copy.deepcopy(network.config)
    # gpt2 has another name for it, and the same attribute
    config.max_position_embeddings = MAX_TOKENS
    torch.manual_seed(0)
    save_tiny_model(folder, LanguageModel(type(network)(config).eval(), None, family))
