"""The command line as a whole: its registry, its imports, its exit status."""

import subprocess
import sys
from pathlib import Path

import pytest
from checks import IDENTITY, make_chunk

from cachegen import Encoding, encode_chunk
from cachegen.cli import main
from cachegen.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def test_every_command_has_its_file_and_its_help(capsys):
    files = {path.stem for path in (ROOT / "cachegen" / "commands").glob("*.py")}
    assert set(COMMANDS) <= files
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n    {name}" in shown for name in COMMANDS)


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_loads_no_torch(arguments):
    program = (
        "import sys; from cachegen.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "0 False"


def test_serve_loads_no_torch(tmp_path):
    program = (
        "import sys; import cachegen.server.run; cachegen.server.run.serve = lambda *a: print('torch' in sys.modules)\n"
        "from cachegen.cli import main; print(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "serve", "--root", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0"]


def test_an_unknown_command_is_refused_by_name(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["compress"])
    assert "compress" in capsys.readouterr().err


def test_an_interrupted_command_says_so_by_its_status(tmp_path, monkeypatch):
    def interrupt(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["inspect"], "run", interrupt)
    assert main(["inspect", str(tmp_path / "x")]) == 130


def test_the_systems_own_refusal_names_the_file(tmp_path, capsys, monkeypatch):
    def refuse(_options):
        raise PermissionError(13, "Permission denied", str(tmp_path / "x"))

    monkeypatch.setattr(COMMANDS["inspect"], "run", refuse)
    assert main(["inspect", "x"]) == 2
    assert str(tmp_path / "x") in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(tmp_path):
    """As ``| head -1`` does."""
    (tmp_path / "chunk.kvc").write_bytes(encode_chunk(make_chunk(), Encoding("raw"), IDENTITY, None))
    command = [sys.executable, "-m", "cachegen", "inspect", str(tmp_path / "chunk.kvc")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        process.stdout.close()
        errors = process.stderr.read()

    assert process.returncode == 130
    assert errors == b""
