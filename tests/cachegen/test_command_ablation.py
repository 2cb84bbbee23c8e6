"""ablation: a line for each variant and level."""

from cachegen.ablation import DEFAULT_QUANTIZATION, VARIANTS
from cachegen.cli import main
from cachegen.commands import ablation
from cachegen.kernels.anchor import LEVEL_MULTIPLIERS


def command(model_files, text_file, *more):
    return main(["ablation", "--text", str(text_file), "--model", str(model_files.folder), *more])


def test_every_variant_has_a_line_for_each_level(model_files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ablation, "calibration_texts", lambda: ["Practice makes perfect, but slowly. " * 12])
    text = tmp_path / "text.txt"
    text.write_text("All work and no play makes Jack a dull boy. " * 12, encoding="utf-8")
    assert command(model_files, text) == 0

    shown = capsys.readouterr()
    # of 528 characters and 2,048 tokens that are asked for
    assert "llama: holds 512 tokens, so at most 256 of context" in shown.err
    assert "on 256 tokens" in shown.out
    lines = shown.out.splitlines()
    for name in DEFAULT_QUANTIZATION:
        assert sum(line.split()[:1] == [name] for line in lines) == 1
    values = [line for line in lines if line.split()[-1:] and line.split()[-1][:1] in "+-"]
    assert len(values) == len(DEFAULT_QUANTIZATION) + len(VARIANTS) * len(LEVEL_MULTIPLIERS)


def test_no_tokens_and_no_text_are_refused(model_files, tmp_path, capsys):
    assert command(model_files, tmp_path / "absent.txt") == 2
    assert "absent.txt" in capsys.readouterr().err
    text = tmp_path / "text.txt"
    text.write_text("word", encoding="utf-8")
    assert command(model_files, text, "--tokens", "0") == 2
    assert "--tokens is 0" in capsys.readouterr().err
