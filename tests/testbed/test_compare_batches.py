"""Requests that met on a link are one sample of it; a closed loop is paired by what was scheduled."""

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_runs import draw_rows, edit_json, make_row, slower, write_run

from testbed.compare.__main__ import main
from testbed.compare.measures import Margins, measure_all
from testbed.compare.pairs import pair_up
from testbed.compare.rules import Verdict, decide, verdict_of_method
from testbed.compare.runs import Run
from testbed.compare.scenarios import Scenario

PERIOD_S = 120.0


@pytest.fixture
def compare(tmp_path, capsys):
    """A function that compares what lies below ``base`` and ``new``: exit status, JSON document, text."""

    def compare(*flags):
        status = main([str(tmp_path / "base"), str(tmp_path / "new"), "--json", str(tmp_path / "out.json"), *flags])
        captured = capsys.readouterr()
        return status, json.loads((tmp_path / "out.json").read_text()), captured.out + captured.err

    return compare


def poisson_rows(draw, requests, slowdown=1.0, begin_s=30.0):
    """A run of one batch: a request every two seconds of the trace."""
    rows = draw_rows(draw, requests, slowdown=slowdown, median_ms=400)
    return [
        make_row(
            row.request, row.method, row.ttft_ms, offset_s=begin_s + 2.0 * row.request, arrival_s=2.0 * row.request
        )
        for row in rows
    ]


def closed_rows(draw, requests, *, users=2, begin_s=115.0, lead_s=0.0, slowdown=1.0):
    """A run of one batch in a closed loop, begun ``lead_s`` late: each user asks when its last answer has begun."""
    free_s, rows = [lead_s] * users, []
    for row in draw_rows(draw, requests, slowdown=slowdown):
        arrival_s = min(free_s)
        free_s[free_s.index(arrival_s)] += row.ttft_ms / 1e3
        offset_s = (begin_s + arrival_s) % PERIOD_S
        rows.append(make_row(row.request, row.method, row.ttft_ms, offset_s=offset_s, arrival_s=arrival_s))
    return rows


def drawn_run(rng, batches, size):
    """A run whose every batch has a mood of its own, of a tenth, beside what each request scatters by."""
    moods = rng.normal(0.0, 0.1, batches)
    rows = [
        make_row(
            batch * size + place,
            "m",
            float(400 * np.exp(moods[batch] + rng.normal(0.0, 0.05))),
            offset_s=10.0 * batch + place,
            arrival_s=float(place),
            batch=batch,
        )
        for batch in range(batches)
        for place in range(size)
    ]
    return Run(Path("drawn"), {"arrivals": "trace:log.csv"}, {}, {}, tuple(rows))


def same_code_verdict(rng, batches, size):
    scenario = Scenario("drawn", *((drawn_run(rng, batches, size),) for _ in range(2)))
    findings = decide(measure_all(pair_up(scenario, "m"), Margins(), 60_000.0, is_exact=False))
    return verdict_of_method(findings)


def test_one_batch_settles_nothing_and_more_raise_no_more_alarms_than_stated():
    rng = np.random.default_rng(17)
    assert {same_code_verdict(rng, 1, 40) for _ in range(60)} == {Verdict.INCONCLUSIVE}
    drawn = [same_code_verdict(rng, 10, 4) for _ in range(100)]
    # of 100 at 5 %, more than 11 come once in 200 times
    assert sum(verdict in (Verdict.REGRESSED, Verdict.IMPROVED) for verdict in drawn) <= 11


def test_a_batch_is_one_cluster_and_the_report_says_what_to_do(compare, tmp_path):
    for side, slowdown in (("base", 1.0), ("new", 1.5)):
        rows = poisson_rows(side, 40, slowdown)
        write_run(tmp_path / side, rows, config={"arrivals": "poisson:0.5"})
    status, document, text = compare("--fail-on", "inconclusive")
    [cell] = document["cells"]
    assert (status, cell["verdict"], cell["pairs"], cell["clusters"], cell["unit"]) == (
        4,
        "INCONCLUSIVE",
        40,
        1,
        "batches",
    )
    assert "1 batch does not settle it" in text
    assert (
        f"a verdict needs about {cell['more_pairs']} more batches ({1 + cell['more_pairs']} in all): requests" in text
    )
    assert "run both sides with further seeds, one --seed after the other" in text


def test_batches_of_further_seeds_come_to_a_verdict(compare, tmp_path):
    for seed in range(8):
        for side, slowdown in (("base", 1.0), ("new", 1.5)):
            rows = poisson_rows(f"{side} {seed}", 5, slowdown, begin_s=7.0 * seed)
            write_run(tmp_path / side, rows, config={"arrivals": "poisson:0.5", "seed": seed})
    _, document, _ = compare()
    assert (document["verdict"], document["cells"][0]["clusters"]) == ("REGRESSED", 8)


def test_requests_of_a_run_older_than_batches_are_each_a_place(compare, tmp_path):
    for side in ("base", "new"):
        path = write_run(tmp_path / side, draw_rows(side, 8)) / "config.json"
        config = json.loads(path.read_text())
        del config["arrivals"]
        path.write_text(json.dumps(config))
    [cell] = compare()[1]["cells"]
    assert (cell["clusters"], cell["unit"]) == (8, "places of the trace")


def test_a_closed_loop_is_paired_whenever_its_requests_arrived(compare, tmp_path):
    for seed in range(8):
        for side, lead_s, slowdown in (("base", 0.0, 1.0), ("new", 0.004, 1.5)):
            # the last of these batches begin before the trace's end and go on after it
            rows = closed_rows(f"{side} {seed}", 6, begin_s=113.0 + 0.999 * seed, lead_s=lead_s, slowdown=slowdown)
            write_run(tmp_path / side, rows, config={"arrivals": "closed:2", "seed": seed})
    _, document, _ = compare()
    [cell] = document["cells"]
    assert (document["verdict"], cell["pairs"], cell["clusters"]) == ("REGRESSED", 48, 8)


def test_a_batch_that_arrived_beyond_the_end_of_the_trace_began_before_it(compare, tmp_path):
    for side, lead_s in (("base", 0.0), ("new", 0.01)):
        rows = closed_rows(side, 6, begin_s=119.995, lead_s=lead_s)
        run = write_run(tmp_path / side, rows, config={"arrivals": "closed:2"})
    assert compare()[1]["cells"][0]["pairs"] == 6
    edit_json(run / "manifest.json", "trace.period_s", None)
    status, _, text = compare()
    assert status == 2
    assert f"{run}: manifest.json trace.period_s must be a number above 0, not None" in text


def test_closed_loops_of_other_schedules_are_refused(compare, tmp_path):
    write_run(tmp_path / "base", closed_rows("a", 6), config={"arrivals": "closed:2"})
    new = write_run(tmp_path / "new", closed_rows("b", 6, begin_s=20.0), config={"arrivals": "closed:2", "seed": 1})
    status, _, text = compare()
    assert status == 2
    assert "BASE served it" in text
    assert "seed 0 and 1" in text
    edit_json(new / "config.json", "arrivals", "closed:3")
    assert "config.json arrivals is closed:2 in BASE and closed:3 in NEW" in compare()[2]


def test_a_log_of_requests_that_changed_is_another_schedule(compare, tmp_path):
    rows = poisson_rows("a", 6)
    late = [
        make_row(r.request, r.method, r.ttft_ms, offset_s=r.trace_offset_s + 0.5 * r.request, arrival_s=2.5 * r.request)
        for r in rows
    ]
    for side, served in (("base", rows), ("new", slower(late, 1.1))):
        write_run(tmp_path / side, served, config={"arrivals": "trace:log.csv"})
    status, _, text = compare()
    assert status == 2
    assert "request 1: trace_offset_s is 32.0 in BASE and 32.5 in NEW" in text
