"""The comparison of run directories: verdicts on pairs with known answers, exit statuses, refusals."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic_runs import draw_rows, edit_json, make_row, slower, write_run

from testbed.compare.__main__ import main, parse_arguments

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def compare(tmp_path, capsys):
    """A function that compares two lists of rows, or two paths: exit status, JSON document, Markdown."""

    def compare(base, new, *flags):
        paths = [
            side if isinstance(side, Path) else write_run(tmp_path / name, side)
            for name, side in (("base", base), ("new", new))
        ]
        status = main([*map(str, paths), "--json", str(tmp_path / "out.json"), *flags])
        captured = capsys.readouterr()
        return status, json.loads((tmp_path / "out.json").read_text()), captured.out + captured.err

    return compare


def verdicts(document):
    return {cell["method"]: cell["verdict"] for cell in document["cells"]}


def test_the_same_code_measured_twice_is_equivalent_where_there_is_enough_of_it(compare):
    status, document, text = compare(
        draw_rows("a", 400, median_ms=400), draw_rows("b", 400, median_ms=400), "--fail-on", "inconclusive"
    )
    assert (status, document["verdict"]) == (0, "EQUIVALENT")
    assert text.startswith("## EQUIVALENT: of 1 scenario and method, 1 equivalent (400 pairs of requests)")


def test_a_small_sample_is_inconclusive_and_says_how_many_pairs_it_lacks(compare):
    status, document, text = compare(draw_rows("a", 5), draw_rows("b", 5), "--fail-on", "inconclusive")
    assert (status, document["verdict"]) == (4, "INCONCLUSIVE")
    needed = document["cells"][0]["more_pairs"]
    assert needed >= 128
    assert f"a verdict needs about {needed} more pairs, at further places of the trace ({5 + needed} in all)" in text


def test_five_pairs_find_nothing_however_large(compare):
    rows = draw_rows("a", 5)
    status, document, _ = compare(rows, slower(rows, 3.0))
    assert (status, document["verdict"]) == (0, "INCONCLUSIVE")


def test_a_planted_slowdown_is_found_in_the_method_that_has_it(compare):
    base = draw_rows("a", 40, ["text", "cachegen"])
    new = [row if row.method == "text" else slower([row], 1.2)[0] for row in draw_rows("b", 40, ["text", "cachegen"])]
    status, document, text = compare(base, new)
    assert status == 1
    assert verdicts(document) == {"text": "INCONCLUSIVE", "cachegen": "REGRESSED"}
    ttft = document["cells"][1]["measures"]["ttft"]
    low, high = ttft["interval"]
    assert low < 0.2 < high
    assert "Mean change by stage: fetch +" in text
    assert "Slowest against BASE: cachegen" in text


def test_a_speed_up_is_an_improvement_and_no_failure(compare):
    status, document, _ = compare(draw_rows("a", 40), draw_rows("b", 40, slowdown=0.8))
    assert (status, document["verdict"]) == (0, "IMPROVED")


def test_a_slowdown_within_the_margin_is_equivalent(compare):
    rows = draw_rows("a", 200, median_ms=300)
    _, document, _ = compare(rows, slower(draw_rows("b", 200, median_ms=300), 1.02))
    assert verdicts(document) == {"cachegen": "EQUIVALENT"}


def test_violations_regress_where_the_median_does_not(compare):
    base = draw_rows("a", 200, median_ms=400)
    new = [row if row.request % 5 else slower([row], 4.0)[0] for row in draw_rows("b", 200, median_ms=400)]
    _, document, _ = compare(base, new)
    violations = document["cells"][0]["measures"]["violations"]
    assert violations["verdict"] == "REGRESSED"
    assert violations["new_only"] > 20
    assert violations["base_only"] == 0


def test_failures_are_no_way_to_become_fast(compare):
    base = draw_rows("a", 60, median_ms=950)
    new = [
        row if row.ttft_ms < 1000 else make_row(row.request, row.method, None, offset_s=row.trace_offset_s)
        for row in draw_rows("b", 60, median_ms=950)
    ]
    _, document, _ = compare(base, new)
    assert document["cells"][0]["measures"]["ttft"]["verdict"] == "REGRESSED"


def test_a_method_that_never_comes_to_a_token_is_never_green(compare):
    rows = [make_row(request, "cachegen", None) for request in range(300)]
    status, document, text = compare(rows, rows, "--fail-on", "inconclusive")
    assert (status, document["verdict"]) == (4, "INCONCLUSIVE")
    assert "no request came to a first token on either side" in text


def test_a_fast_wrong_answer_is_a_regression(compare):
    base = draw_rows("a", 30)
    new = [make_row(r.request, r.method, 0.7 * r.ttft_ms, offset_s=r.trace_offset_s, agreement=0.9) for r in base]
    _, document, _ = compare(base, new)
    measures = document["cells"][0]["measures"]
    assert measures["ttft"]["verdict"] == "IMPROVED"
    assert measures["agreement"]["verdict"] == verdicts(document)["cachegen"] == "REGRESSED"


def test_repetitions_of_a_place_are_one_cluster(compare, tmp_path):
    for draw in range(3):
        write_run(tmp_path / "b", draw_rows(f"base {draw}", 8))
        write_run(tmp_path / "n", draw_rows(f"new {draw}", 8))
    _, document, _ = compare(tmp_path / "b", tmp_path / "n")
    cell = document["cells"][0]
    assert (cell["pairs"], cell["clusters"]) == (24, 8)
    assert [len(document[side]) for side in ("base", "new")] == [3, 3]


def test_other_seeds_are_other_places(compare, tmp_path):
    for seed in range(3):
        for side in "bn":
            write_run(tmp_path / side, draw_rows(side, 8, seed=seed), config={"seed": seed})
    more = [flag for side, name in (("b", "--base"), ("n", "--new")) for flag in (name, str(tmp_path / side))]
    first = [next((tmp_path / side).iterdir()) for side in "bn"]
    _, document, _ = compare(*first, *more)
    assert document["cells"][0]["clusters"] == 24


def test_scenarios_are_judged_apart(compare, tmp_path):
    for side, slowdown in (("b", 1.0), ("n", 1.3)):
        write_run(tmp_path / side, draw_rows(side, 30))
        rows = draw_rows(side, 30, slowdown=slowdown, median_ms=400)
        write_run(tmp_path / side, rows, config={"delay_ms": 50.0})
    _, document, _ = compare(tmp_path / "b", tmp_path / "n")
    found = {cell["scenario"]: cell["verdict"] for cell in document["cells"]}
    assert found == {
        "lte, SLO 1 s, delay_ms 20.0": "INCONCLUSIVE",
        "lte, SLO 1 s, delay_ms 50.0": "REGRESSED",
    }


def test_a_machine_that_is_busy_for_half_a_run_makes_no_verdict(compare):
    """The same code: without the machine's part it would be called slower by a fifth."""
    new = [row if row.request < 20 else slower([row], 1.5)[0] for row in draw_rows("b", 40, ["text", "cachegen"])]
    status, document, text = compare(draw_rows("a", 40, ["text", "cachegen"]), new, "--fail-on", "inconclusive")
    assert (status, document["verdict"]) == (4, "INCONCLUSIVE")
    assert {(cell["unit"], cell["clusters"]) for cell in document["cells"]} == {("pairs of runs", 1)}
    assert "the machine was not steady" in text
    assert "more pairs of runs, or a steady machine (" in text


def test_a_scenario_is_named_by_what_tells_it_from_the_others(compare, tmp_path):
    for side in "bn":
        write_run(tmp_path / side, draw_rows(side, 3), started="1")
        wifi = {"trace": {"name": "wifi", "sha256": "77" * 32}}
        write_run(tmp_path / side, draw_rows(side, 3), manifest=wifi, started="2")
        write_run(tmp_path / side, draw_rows(side, 3), config={"chunk_tokens": 64}, manifest=wifi, started="3")
    cells = compare(tmp_path / "b", tmp_path / "n")[1]["cells"]
    assert [cell["scenario"] for cell in cells] == [
        "lte, SLO 1 s",
        "wifi, SLO 1 s, chunk_tokens 512",
        "wifi, SLO 1 s, chunk_tokens 64",
    ]


def test_one_measurement_compared_with_itself_is_equal_and_says_so(compare, tmp_path):
    run = write_run(tmp_path / "runs", draw_rows("a", 3))
    status, document, text = compare(run, run)
    assert (status, document["verdict"], document["exact"]) == (0, "EQUIVALENT", True)
    assert "this is one measurement, compared with itself" in text
    assert "says nothing of what two measurements of the same code would be called" in text
    assert compare(run, draw_rows("b", 3))[1]["verdict"] == "INCONCLUSIVE"


def test_the_virtual_tier_is_exact(compare, tmp_path):
    rows = draw_rows("a", 4)
    modelled = {"network": None, "inference": None, "costs": {"sha256": "12" * 32}}
    runs = {
        factor: write_run(tmp_path / "runs", slower(rows, factor), config={"tier": "virtual"}, manifest=modelled)
        for factor in (1.0, 1.01, 1.06)
    }
    _, document, text = compare(runs[1.0], runs[1.0])
    assert (document["verdict"], document["cells"][0]["measures"]["ttft"]["p_value"]) == ("EQUIVALENT", None)
    assert "equality is exact" in text
    assert "all TTFTs are equal to the last digit" in text
    assert compare(runs[1.0], runs[1.01])[1]["verdict"] == "EQUIVALENT"
    assert compare(runs[1.0], runs[1.06])[0] == 1
    edit_json(runs[1.06] / "manifest.json", "costs.sha256", "34")
    status, document, _ = compare(runs[1.0], runs[1.06])
    assert (status, document["reason"].split(": ")[1]) == (
        2,
        f"manifest.json costs.sha256 is {'12' * 32} in BASE and 34 in NEW",
    )


@pytest.mark.parametrize(
    ("file", "place", "value", "message"),
    [
        ("config.json", "slo_ms", 2000.0, "config.json slo_ms is 1000.0 in BASE and 2000.0 in NEW"),
        ("config.json", "context_tokens", 1024, "config.json context_tokens is 2048 in BASE and 1024 in NEW"),
        ("config.json", "chunk_tokens", 256, "config.json chunk_tokens is 512 in BASE and 256 in NEW"),
        ("config.json", "tier", "virtual", "tier is wall-clock in "),
        ("manifest.json", "trace.sha256", "ff", f"manifest.json trace.sha256 is {'5b' * 32} in BASE and ff in NEW"),
        ("manifest.json", "inference.model.fingerprint", "cd", "inference.model.fingerprint is abab"),
        ("manifest.json", "inference.contexts", [{"name": "x", "tokens": 9}], "contexts is [['context-0', 2048]"),
    ],
)
def test_runs_that_differ_in_more_than_the_code_are_refused(compare, tmp_path, file, place, value, message):
    rows = draw_rows("a", 10)
    base, new = write_run(tmp_path / "b", rows), write_run(tmp_path / "n", rows)
    edit_json(new / file, place, value)
    status, document, text = compare(base, new)
    assert (status, document["exit_status"], document["verdict"]) == (2, 2, None)
    assert message in text
    assert message in document["reason"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], "request 9 at trace offset"),
        (lambda rows: draw_rows("a", 10, ["cachegen"]), "methods are text, cachegen in BASE and cachegen in NEW"),
        (lambda rows: draw_rows("a", 10, ["text", "cachegen"], seed=1), "BASE served it"),
        (lambda rows: [make_row(r.request, r.method, 1.0, context="x") for r in rows], "context is context-2 in BASE"),
    ],
)
def test_requests_without_a_counterpart_are_refused(compare, change, message):
    rows = draw_rows("a", 10, ["text", "cachegen"])
    status, _, text = compare(rows, change(rows))
    assert status == 2
    assert message in text


@pytest.mark.parametrize(
    ("place", "value", "status", "message"),
    [
        ("validity.verdict", "INVALID", 3, "the run is INVALID"),
        ("status", "interrupted", 3, "the run is interrupted, not complete"),
        ("status", "running", 3, "the run is running, not complete"),
        ("status", "broken", 5, "the run is broken"),
        ("schema", 99, 2, "schema is 99, must be 1"),
    ],
)
def test_runs_that_do_not_stand_for_themselves_are_refused(compare, tmp_path, place, value, status, message):
    rows = draw_rows("a", 10)
    base, new = write_run(tmp_path / "b", rows), write_run(tmp_path / "n", rows)
    edit_json(new / "summary.json", place, value)
    found, _, text = compare(base, new)
    assert found == status
    assert f"{new}" in text
    assert message in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ttft_ms", "ttft", "no column ttft_ms"),
        (",ok,", ",fine,", "requests.csv:2: status must be one of aborted, failed, ok, timed_out, not 'fine'"),
        (",ok,", ",failed,", "requests.csv:2: ttft_ms does not go with the status failed"),
        (",1000,", ",-3,", "requests.csv:2: bytes must be a whole number"),
        (",1000.0,", ",nan,", "requests.csv:2: slo_ms must be a finite number above 0, not 'nan'"),
    ],
)
def test_a_damaged_row_is_named_by_file_line_and_column(compare, tmp_path, old, new, message):
    rows = draw_rows("a", 10)
    base, damaged = write_run(tmp_path / "b", rows), write_run(tmp_path / "n", rows)
    path = damaged / "requests.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    status, _, text = compare(base, damaged)
    assert status == 2
    assert message in text


def test_a_path_that_holds_no_run_is_refused(compare, tmp_path):
    run = write_run(tmp_path / "b", draw_rows("a", 3))
    (tmp_path / "empty").mkdir()
    assert "neither a run directory" in compare(run, tmp_path / "empty")[2]
    assert "no such directory" in compare(run, tmp_path / "missing")[2]
    (run / "manifest.json").write_text("{")
    assert "manifest.json: not JSON" in compare(run, run)[2]
    (run / "manifest.json").unlink()
    assert "manifest.json: cannot be read: No such file" in compare(run, run)[2]


def test_a_folder_of_runs_is_read_once_each(compare, tmp_path):
    run = write_run(tmp_path / "runs", draw_rows("a", 3))
    (tmp_path / "runs" / "latest").symlink_to(run.name)
    _, document, _ = compare(tmp_path / "runs", run)
    assert len(document["base"]) == 1


def test_another_machine_is_noted(compare, tmp_path):
    rows = draw_rows("a", 30)
    base, new = write_run(tmp_path / "b", rows), write_run(tmp_path / "n", draw_rows("b", 30))
    edit_json(new / "manifest.json", "host.cpu", "another")
    _, document, text = compare(base, new)
    assert any("host.cpu differs (a processor in BASE, another in NEW)" in note for note in document["notes"])
    assert "> manifest.json host.cpu differs" in text


def test_a_setting_that_one_release_lacks_is_noted_and_one_that_both_have_must_be_equal(compare, tmp_path):
    rows = draw_rows("a", 6)
    base, new = write_run(tmp_path / "b", rows), write_run(tmp_path / "n", rows, config={"wobble_ms": 3.0})
    notes = compare(base, new)[1]["notes"]
    assert notes[0] == f"config.json wobble_ms is 3.0 in {new.name}, and not in every run: it was not compared"
    edit_json(base / "config.json", "wobble_ms", 0.0)
    status, document, _ = compare(base, new)
    assert (status, document["reason"].split(": ")[1]) == (2, "config.json wobble_ms is 0.0 in BASE and 3.0 in NEW")


def test_sides_that_did_not_take_turns_are_noted(compare, tmp_path):
    def run(side, hour):
        return write_run(tmp_path / side, draw_rows(f"{side}{hour}", 6), started=f"2026-01-01T0{hour}:00:00Z")

    run("b", 1), run("n", 2)
    assert any("take turns" in note for note in compare(tmp_path / "b", tmp_path / "n")[1]["notes"])
    run("n", 3), run("b", 4)
    assert not any("take turns" in note for note in compare(tmp_path / "b", tmp_path / "n")[1]["notes"])


@pytest.mark.parametrize(("fail_on", "status"), [("regressed", 1), ("inconclusive", 1), ("never", 0)])
def test_the_exit_status_follows_fail_on(compare, fail_on, status):
    assert compare(draw_rows("a", 30), draw_rows("b", 30, slowdown=1.3), "--fail-on", fail_on)[0] == status


@pytest.mark.parametrize("flag", ["--margin=2", "--margin=2%", "--ttft-margin=5", "--margin=0pp", "--margin=-1pp"])
def test_a_margin_without_its_unit_is_a_usage_error(flag, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["a", "b", flag])
    assert caught.value.code == 2
    text = capsys.readouterr().err
    unit = "%" if flag.startswith("--ttft") else "pp"
    assert (
        f"{flag.split('=')[1]!r} is not a number above 0 and below 100 with its unit: write 2{unit} or '2 {unit}'"
        in text
    )


def test_a_margin_may_stand_apart_from_its_unit_and_the_usage_shows_how_it_is_written(capsys):
    options = parse_arguments(["a", "b", "--margin", "2.5 pp", "--ttft-margin", "7 %", "--agreement-margin", "3pp"])
    assert (options.margin, options.ttft_margin, options.agreement_margin) == pytest.approx((0.025, 0.07, 0.03))
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "[--margin 2pp] [--ttft-margin 5%]" in " ".join(text.split())
    assert "%%" not in text


def test_junit_fails_what_regressed_and_skips_what_is_open(compare, tmp_path):
    methods = ["text", "cachegen"]
    new = [row if row.method == "text" else slower([row], 1.3)[0] for row in draw_rows("b", 30, methods)]
    compare(draw_rows("a", 30, methods), new, "--junit", str(tmp_path / "out.xml"))
    root = ElementTree.fromstring((tmp_path / "out.xml").read_text())
    suite = root.find("testsuite")
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert cases["text"].find("skipped") is not None
    assert cases["cachegen"].find("failure").get("type") == "slo-regression"
    assert "TTFT worse: +" in cases["cachegen"].find("failure").get("message")
    properties = {item.get("name"): item.get("value") for item in cases["cachegen"].iter("property")}
    assert properties["ttft.verdict"] == "REGRESSED"


def test_a_refusal_is_an_error_in_every_report(compare, tmp_path):
    run = write_run(tmp_path / "b", draw_rows("a", 3))
    files = [tmp_path / name for name in ("out.xml", "out.md")]
    compare(run, tmp_path / "none", "--junit", str(files[0]), "--markdown", str(files[1]))
    assert ElementTree.fromstring(files[0].read_text()).find("testsuite").get("errors") == "1"
    assert files[1].read_text().startswith("## NOT COMPARED\n\n")


def test_a_report_that_cannot_be_written_is_an_infrastructure_error(compare, tmp_path):
    rows = draw_rows("a", 3)
    status, _, text = compare(rows, rows, "--markdown", str(tmp_path / "no" / "out.md"))
    assert status == 5
    assert "out.md: cannot be written: No such file or directory" in text


def test_a_reader_that_goes_away_changes_no_verdict(tmp_path):
    paths = [write_run(tmp_path / side, draw_rows(side, 30, slowdown=slow)) for side, slow in (("b", 1.0), ("n", 1.3))]
    command = [sys.executable, "-m", "testbed.compare", *map(str, paths)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_it_runs_as_a_module_and_loads_neither_mininet_nor_torch(tmp_path):
    run = write_run(tmp_path, draw_rows("a", 3))
    program = (
        "import runpy, sys; sys.argv = ['compare', *sys.argv[1:]]\n"
        "try: runpy.run_module('testbed.compare', run_name='__main__')\n"
        "except SystemExit as end: print(end.code, [m for m in ('torch', 'mininet') if m in sys.modules])"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(run), str(run)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 []\n")
