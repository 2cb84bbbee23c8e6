"""ablation: a line for each variant and level, at the terminal, in a file of figures and on a page."""

import json

import pytest

import cachegen.own_text
from cachegen.ablation import DEFAULT_QUANTIZATION, VARIANTS
from cachegen.cli import main
from cachegen.commands import ablation
from cachegen.kernels.anchor import LEVEL_MULTIPLIERS
from cachegen.kernels.uniform import LEVEL_PLACES
from cachegen.kv import KVShape
from cachegen.transform_ablation import stages_of


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A held-out text; calibration texts are short, for speed."""
    monkeypatch.setattr(ablation, "calibration_texts", lambda: ["Practice makes perfect, but slowly. " * 12])
    monkeypatch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
    path = tmp_path / "text.txt"
    path.write_text("All work and no play makes Jack a dull boy. " * 12, encoding="utf-8")
    return path


def command(model_files, text_file, *more):
    return main(["ablation", "--text", str(text_file), "--model", str(model_files.folder), *more])


def test_every_variant_has_a_line_for_each_level(model_files, text, capsys):
    assert command(model_files, text, "--tokens", "100", "--codec", "cachegen") == 0

    lines = capsys.readouterr().out.splitlines()
    for name in DEFAULT_QUANTIZATION:
        assert sum(line.split()[:1] == [name] for line in lines) == 1
    values = [line for line in lines if line.split()[-1:] and line.split()[-1][:1] in "+-"]
    assert len(values) == len(DEFAULT_QUANTIZATION) + len(VARIANTS) * len(LEVEL_MULTIPLIERS)


def test_a_context_is_cut_to_what_the_model_holds(model_files, text, capsys):
    assert command(model_files, text, "--codec", "cachegen") == 0

    shown = capsys.readouterr()
    # of 528 characters and 2,048 tokens that are asked for
    assert "llama: holds 512 tokens, so at most 256 of context" in shown.err
    assert "256 tokens" in shown.out


def test_file_and_page_have_every_stage_of_the_transform_at_every_level(model_files, text, tmp_path):
    output, page = tmp_path / "out.json", tmp_path / "ablation.md"
    more = ["--tokens", "100", "--chunk-tokens", "64", "--json", str(output), "--page", str(page)]
    assert command(model_files, text, "--codec", "transform", *more) == 0

    result = json.loads(output.read_text(encoding="utf-8"))
    stages = [stage.name for stage in stages_of(KVShape(**result["model_info"]["kv_shape"]), codebook=True)]
    rows = result["ablations"]["transform"]
    assert list(result["ablations"]) == ["transform"]
    assert [(row["variant"], row["level"]) for row in rows] == [
        (name, level) for name in stages for level in range(len(LEVEL_PLACES))
    ]
    assert (result["tokens"], result["chunk_tokens"]) == (100, 64)
    shown = page.read_text(encoding="utf-8")
    assert "chunks of 64" in shown
    assert f"float32 on {result['model_info']['device']}" in shown
    for row in rows:
        assert f"| {row['variant']} | {row['level']} | {row['num_bytes']:,} |" in shown


def test_the_dtype_is_the_one_asked_for_and_the_page_says_what_follows(model_files, text, tmp_path):
    page = tmp_path / "ablation.md"
    more = ["--tokens", "50", "--codec", "cachegen", "--dtype", "bfloat16", "--page", str(page)]
    assert command(model_files, text, *more) == 0

    shown = page.read_text(encoding="utf-8")
    assert "bfloat16 on cpu" in shown
    assert "Predictions are computed in bfloat16" in shown


def test_no_tokens_and_no_text_are_refused(model_files, tmp_path, capsys):
    assert command(model_files, tmp_path / "absent.txt") == 2
    assert "absent.txt" in capsys.readouterr().err
    text = tmp_path / "text.txt"
    text.write_text("word", encoding="utf-8")
    assert command(model_files, text, "--tokens", "0") == 2
    assert "--tokens is 0" in capsys.readouterr().err
    assert command(model_files, text, "--chunk-tokens", "0") == 2
    assert "--chunk-tokens is 0" in capsys.readouterr().err
    assert command(model_files, text, "--json", str(text)) == 2
    assert f"{text}: is there already" in capsys.readouterr().err
