"""The reports of a run, made and made again."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from example_run import HOSTILE, default_rows, failed, write_run

from testbed.report import main, write_reports
from testbed.virtual_run import main as run_virtually

ROOT = Path(__file__).resolve().parents[2]
MADE = ("report.html", "report.md", "requests.parquet", "ttft.svg")


def test_reports_are_made_again_byte_for_byte_out_of_the_files(tmp_path):
    path = write_run(tmp_path)
    write_reports(path)
    first = {name: (path / name).read_bytes() for name in MADE}
    for name in ("report.html", "report.md", "requests.parquet"):
        (path / name).unlink()
    write_reports(path)

    assert {name: (path / name).read_bytes() for name in MADE[:3]} == {name: first[name] for name in MADE[:3]}
    assert not list(path.glob(".*"))


def test_a_table_that_is_there_is_kept(tmp_path):
    path = write_run(tmp_path)
    (path / "requests.parquet").write_bytes(b"mine")
    write_reports(path)
    assert (path / "requests.parquet").read_bytes() == b"mine"


def test_the_table_carries_the_run_it_is_from(tmp_path):
    path = write_run(tmp_path)
    write_reports(path)
    metadata = pq.read_schema(path / "requests.parquet").metadata
    for name in ("config", "manifest", "summary"):
        assert json.loads(metadata[name.encode()]) == json.loads((path / f"{name}.json").read_text())


def test_every_named_run_gets_its_own_page(tmp_path, capsys):
    paths = [write_run(tmp_path, verdict=verdict, reasons=["late"]) for verdict in ("VALID", "INVALID")]
    assert main([str(path) for path in paths]) == 0
    assert capsys.readouterr().out == "".join(f"{path / 'report.html'}\n" for path in paths)
    assert "INVALID" not in (paths[0] / "report.html").read_text()
    assert "INVALID" in (paths[1] / "report.html").read_text()


def test_a_virtual_run_which_has_no_machine_and_no_network_gets_its_reports(tmp_path):
    grid = ["--traces", "lte", "--context-tokens", "1024", "--slo-shares", "0.6", "--requests", "2"]
    assert run_virtually(["-o", str(tmp_path / "grid"), *grid, "--methods", "text,transform-meet"]) == 0
    [path] = (tmp_path / "grid").glob("lte-*")
    assert main([str(path)]) == 0

    report, page = (path / "report.md").read_text(), (path / "report.html").read_text()
    assert all((path / name).stat().st_size for name in MADE)
    assert "- **transform-meet**: " in report
    assert "Contexts of 1024 tokens in chunks of 512" in report
    for text in (report, page):
        assert "No link was measured" in text
        assert "virtual_costs.json" in text
        assert "no git" not in text


def test_a_directory_without_a_run_is_refused_in_one_line(tmp_path):
    command = [sys.executable, "-P", "-m", "testbed.report", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"report: .*summary\.json: .*No such file or directory.*\n", done.stderr)


def test_figures_of_several_runs_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), str(tmp_path), "--pdf", str(tmp_path / "x.pdf")])
    assert "take one RUN" in capsys.readouterr().err


def test_figures_for_a_paper_are_the_same_each_time_and_hold_outlines_of_letters(tmp_path):
    path = write_run(tmp_path)
    assert main([str(path), "--figures", str(tmp_path / "one")]) == 0
    assert main([str(path), "--figures", str(tmp_path / "two")]) == 0
    assert main([str(path), "--pdf", str(tmp_path / "all.pdf")]) == 0

    names = {"ttft.pdf", "attainment.pdf", "quality.pdf", "stages.pdf"}
    assert {file.name for file in (tmp_path / "one").iterdir()} == names
    for name in names:
        data = (tmp_path / "one" / name).read_bytes()
        assert data.startswith(b"%PDF-")
        assert data == (tmp_path / "two" / name).read_bytes()
        assert b"/Type3" not in data  # fonts of pixels, which submission systems refuse
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "all.pdf").read_bytes())) == len(names)


@pytest.mark.parametrize(
    "rows",
    [
        [failed(request, "text", "StoreError: gone") for request in range(2)],
        [*default_rows(), failed(0, "transform", HOSTILE)],
        default_rows()[:1],
    ],
    ids=["nothing came to a first token", "a method that always failed", "one request"],
)
def test_every_picture_bears_what_a_run_can_hold(tmp_path, rows):
    path = write_run(tmp_path, rows)
    assert main([str(path), "--figures", str(tmp_path / "figures")]) == 0
    assert all((path / name).stat().st_size for name in MADE)
