"""The deterministic tier: the same input gives the same files, and its figures follow from trace and costs."""

import json
import re

import pytest

from cachegen import InvalidInputError
from testbed.compare.__main__ import main as compare
from testbed.metrics import STAGES
from testbed.request_rows import read_requests
from testbed.virtual_costs import DEFAULT_PATH, encoding_costs, load_costs
from testbed.virtual_run import main
from testbed.virtual_stages import stages_of

GRID = ["--traces", "lte", "3g", "--context-tokens", "1024", "--slo-shares", "0.6", "--requests", "2"]
METHODS = "text,transform-6,transform,transform-meet,transform-meet:0,transform-oracle"


def run(folder, *flags):
    assert main(["-o", str(folder), "--methods", METHODS, *GRID, *flags]) == 0
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("virtual") / "grid")


def all_rows(folder):
    return [row for path in sorted(folder.glob("*/requests.csv")) for row in read_requests(path)]


def test_the_same_input_gives_the_same_files_to_the_last_bit(finished, tmp_path):
    again = run(tmp_path / "again")

    names = sorted(path.relative_to(finished) for path in finished.rglob("*") if path.is_file())
    assert len(names) == 11
    for name in names:
        assert (again / name).read_bytes() == (finished / name).read_bytes()


def test_another_seed_meets_other_places_of_the_trace(finished, tmp_path):
    other = run(tmp_path / "other", "--seed", "2")

    assert {row.trace_offset_s for row in all_rows(other)}.isdisjoint(row.trace_offset_s for row in all_rows(finished))


def test_stages_sum_to_ttft_and_text_takes_what_its_costs_say(finished):
    costs = load_costs()
    for row in all_rows(finished):
        assert sum(row.stages_ms.values()) == pytest.approx(row.ttft_ms, abs=1e-6)
        if row.method == "text":
            # and a round trip for the index, on a clock that ticks
            assert row.ttft_ms / 1e3 == pytest.approx(costs.text_s(1024, 512) + 0.04, abs=0.02)
            assert row.kl == 0
        # plans leave out the decoding of a chunk, which may fall into the way
        assert row.oracle_ttft_ms <= row.ttft_ms + 150


def test_each_scenario_can_be_compared_with_itself(finished):
    assert compare([str(finished), str(finished)]) == 0


def test_bytes_in_vain_are_counted_and_are_all_of_a_request_without_a_first_token(finished, tmp_path):
    for folder in finished.glob("*-*ms"):
        events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
        said = {
            (event["request"], event["method"]): event["wasted_bytes"] for event in events if event["event"] == "loaded"
        }
        assert {(row.request, row.method): row.wasted_bytes for row in read_requests(folder / "requests.csv")} == said

    [row] = all_rows(
        run(tmp_path / "late", *["--traces", "3g", "--requests", "1", "--methods", "raw", "--request-timeout-s", "2"])
    )
    assert (row.status, row.wasted_bytes) == ("timed_out", row.bytes)


def test_every_controller_is_told_the_estimate_that_is_named(tmp_path, capsys):
    folder = run(tmp_path / "told", "--traces", "lte", "--estimator", "harmonic-mean")
    events = [json.loads(line) for path in folder.glob("*/events.jsonl") for line in path.read_text().splitlines()]
    assert {event["estimator"] for event in events if event["event"] == "decision"} == {"harmonic-mean"}
    [config] = folder.glob("*/config.json")
    assert json.loads(config.read_text())["estimator"] == "harmonic-mean"

    assert main(["-o", str(tmp_path / "x"), *GRID, "--estimator", "guess"]) == 2
    assert "guess" in capsys.readouterr().err


def test_the_report_counts_what_meet_promises(finished):
    text = (finished / "controllers.md").read_text()

    assert text.startswith("# Controllers over 2 scenarios")
    for meet in ("transform-meet", "transform-meet:0"):
        part = text.partition(f"## {meet}\n")[2].partition("##")[0]
        for against in ("the paper's rule", "transform-oracle", "`text`", "violates least", "the better of `text`"):
            assert against in part


def test_a_run_that_is_there_is_not_written_over(finished, capsys):
    assert main(["-o", str(finished), *GRID]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "text,h2o-50+cachegen"], r"method h2o-50\+cachegen: costs are measured of whole contexts"),
        (["--slo-shares", "0.5", "nan"], "--slo-shares must be above 0 and finite"),
        (["--slo-shares", "-1"], "--slo-shares must be above 0 and finite"),
        (["--chunk-tokens", "0"], "a chunk has at least 1 token, not 0"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(tmp_path, capsys, options, message):
    assert main(["-o", str(tmp_path / "x"), *GRID, *options]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["-o", str(tmp_path / "file" / "x"), *GRID]) == 2
    assert "file/x" in capsys.readouterr().err


def test_costs_without_the_encoding_are_refused_by_name(tmp_path, capsys):
    assert main(["-o", str(tmp_path / "x"), *GRID, "--methods", "raw", "--costs", str(without("raw", tmp_path))]) == 2
    assert "no costs of encoding raw" in capsys.readouterr().err


def without(name, folder):
    document = json.loads(DEFAULT_PATH.read_text())
    del document["encodings"][name]
    path = folder / "costs.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "model": "m", "recompute": {}}'])
def test_files_that_are_no_costs_are_refused_by_name(tmp_path, text):
    (tmp_path / "costs.json").write_text(text)

    with pytest.raises(InvalidInputError, match=r"costs\.json: "):
        load_costs(tmp_path / "costs.json")


def test_costs_of_an_encoding_are_per_token_of_the_results():
    row = {"codec": "cachegen", "level": 2, "bytes": 8000, "decode_s": 0.5, "kl": 0.1, "agreement": 0.9}

    [(name, costs)] = encoding_costs({"tokens": 100, "rows": [row]}).items()

    assert (name, costs.bytes_per_token, costs.decode_s_per_token) == ("cachegen-2", 80.0, 0.005)


def test_an_instant_belongs_to_the_last_stage_that_was_going_on():
    events = [
        {"event": "fetch", "first_byte_s": 1.0, "ended_s": 4.0},
        {"event": "recompute", "started_s": 2.0, "ended_s": 3.0},
        {"event": "decode", "started_s": 2.5, "ended_s": 5.0},
    ]

    assert stages_of(events, load_s=6.0, question_s=0.5) == dict.fromkeys(STAGES, 0.0) | {
        "wait": 2.0,
        "fetch": 1.0,
        "recompute": 1.0,
        "decode": 2.0,
        "question_prefill": 0.5,
    }
