"""What stands in the page, before a browser looks at it."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from example_run import HOSTILE, METHODS, SLO_MS, default_events, default_rows, failed, served, write_run

from testbed.cpu_account import CpuUse
from testbed.fidelity import LinkSummary, judge
from testbed.html_report import render_page
from testbed.html_report.link_checks import link_checks
from testbed.html_report.provenance import flattened
from testbed.html_report.tables import attainment_table, main_table, request_table, verdict_line
from testbed.html_report.timeline import timeline
from testbed.link_settings import LinkSettings
from testbed.metrics import summarize_method
from testbed.palette import method_style
from testbed.report_markdown import render_markdown
from testbed.run_files import read_run
from testbed.slo import SLO_SCALES, VIOLATION_CLASSES

ROW = served(0, "cachegen", 1400.0)


class Page(HTMLParser):
    """The elements, and the text of each script."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self._in_script = [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in_script = False

    def handle_data(self, data):
        if self._in_script:
            self.scripts[-1] += data


def hostile_run(tmp_path):
    rows = [
        served(0, "cachegen", 1000.0, context=HOSTILE, levels={HOSTILE: 1}),
        failed(1, "cachegen", HOSTILE),
    ]
    reasons = [HOSTILE, "half a pair: \ud800"]
    return read_run(write_run(tmp_path, rows, verdict="INVALID", reasons=reasons, name=HOSTILE, note=HOSTILE))


def test_no_text_of_a_run_becomes_a_part_of_the_page(tmp_path):
    plain = Page(render_page(read_run(write_run(tmp_path, [ROW, failed(1, "cachegen", "x")]))))
    page = Page(render_page(hostile_run(tmp_path)))

    assert page.scripts[1] == plain.scripts[1]
    assert json.loads(page.scripts[0])["requests"][0]["context"] == HOSTILE
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements}
    assert not [attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)]


def test_the_page_is_text_that_any_editor_takes(tmp_path):
    render_page(hostile_run(tmp_path)).encode("utf-8")


def test_the_page_names_nothing_to_load(tmp_path):
    page = Page(render_page(read_run(write_run(tmp_path))))
    for tag, attrs in page.elements:
        assert "src" not in attrs, tag
        assert (attrs.get("href") or "#")[0] == "#" or attrs["href"] == "data:,"
    style = render_page(read_run(write_run(tmp_path))).partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in style
    assert "url(" not in style
    [policy] = [attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv")]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_no_two_of_many_methods_look_the_same():
    assert len({method_style(place) for place in range(64)}) == 64


def test_the_page_of_a_run_of_the_default_size_is_small(tmp_path):
    rows = [served(request, method, 5000.0) for request in range(5) for method in METHODS]
    assert len(render_page(read_run(write_run(tmp_path, rows)))) < 300_000


def test_the_verdict_ranks_methods_and_joins_those_that_are_equal(tmp_path):
    summary = read_run(write_run(tmp_path)).summary
    assert verdict_line(summary) == (
        "The SLO of 1.5 s was met by cachegen in 2 of 3 requests (67%); "
        "by text and quant8 in 0 of 3 requests (0%) each."
    )


def test_attainment_counts_issued_requests_and_an_slo_met_exactly(tmp_path):
    table = attainment_table(read_run(write_run(tmp_path)).summary)
    at_slo = table.headings.index("1.5 s") - 1
    found = {row.name: [cell.text for cell in row.cells] for row in table.rows}
    assert found["cachegen"][at_slo] == "67%"
    # of three, one failed: no SLO is long enough for it
    assert found["quant8"][-1] == "67%"


def test_scores_stand_in_the_main_table_and_the_uncompressed_caches_below():
    figures = summarize_method([served(0, "cachegen", 1000.0, score=0.25)])
    table = main_table({"methods": {"cachegen": figures}, "reference": {"score_mean": 0.75}})
    assert table.headings[-1] == "score"
    method, reference = table.rows
    assert (method.cells[-1].text, method.cells[-1].pointer) == ("0.25", "/methods/cachegen/score_mean")
    assert (reference.name, reference.cells[-1].text) == ("uncompressed KV", "0.75")
    assert (reference.place, reference.cells[-1].pointer) == (None, "/reference/score_mean")
    assert len(method.cells) == len(reference.cells) == len(table.headings) - 1


def test_every_statistic_of_a_method_stands_in_page_and_markdown(tmp_path):
    late = [served(request, "cachegen", 1600.0 + request, oracle_ttft_ms=1400.0 + 80 * request) for request in range(3)]
    lost = [failed(3, "cachegen", "gone"), failed(4, "cachegen", "slow", status="timed_out")]
    lost = [replace(row, oracle_ttft_ms=1000.0) for row in lost]
    run = read_run(write_run(tmp_path, [*late, *lost, served(5, "cachegen", 500.0, ended_s=0.5)]))
    page, report = render_page(run), render_markdown(run.summary, run.manifest, run.config)
    assert "| cachegen | 3 | 1 | 1 | 0 | 4 | 1 |" in report
    assert "| 83% [44, 97] |" in report
    shown = set(re.findall(r'data-pointer="([^"]*)"', page))
    head = "/methods/cachegen"
    assert "fairness" not in page + report  # each request had the link to itself
    figures = {"wasted_bytes_mean"}
    figures |= {"slo_violation_rate_interval/1", "goodput/requests_per_s", "goodput/bytes_per_s"}
    figures |= {f"violation_classes/{name}" for name in VIOLATION_CLASSES}
    figures |= {f"violations_by_oracle/{name}" for name in ("avoidable", "infeasible")}
    figures |= {f"ttft_ms/{name}" for name in ("mean", "p50", "p90", "p95", "p99")} | {"ttft_ms_interval/p95/0"}
    figures |= {f"slo_attainment/{place}/attainment" for place in range(len(SLO_SCALES))}
    assert {f"{head}/{name}" for name in figures} <= shown


def test_fairness_stands_in_page_and_markdown_where_requests_met(tmp_path):
    rows = [served(request, "text", ttft_ms, batch=0) for request, ttft_ms in enumerate((1000.0, 3000.0))]
    run = read_run(write_run(tmp_path, rows))
    page, report = render_page(run), render_markdown(run.summary, run.manifest, run.config)

    assert "/methods/text/fairness" in re.findall(r'data-pointer="([^"]*)"', page)
    assert "| wasted MB | fairness |" in report
    assert "| 0.001 | 0.900 |" in report
    for text in (page, report):
        assert "Fairness: Jain" in text


def test_a_run_of_before_there_were_such_statistics_has_its_reports(tmp_path):
    path = write_run(tmp_path)
    summary = json.loads((path / "summary.json").read_text())
    for figures in summary["methods"].values():
        for name in ("violation_classes", "slo_attainment", "goodput", "wasted_bytes_mean"):
            del figures[name]
        for name in [name for name in figures if name.endswith("_interval")]:
            del figures[name]
    (path / "summary.json").write_text(json.dumps(summary))
    run = read_run(path)
    assert "Violations and goodput" in render_page(run)
    assert "| text | – | – | – | – | – | – | – | – | – |" in render_markdown(run.summary, run.manifest, run.config)


def test_the_list_of_requests_has_an_end(tmp_path):
    rows = [served(request, "text", 1000.0) for request in range(450)]
    table = request_table(read_run(write_run(tmp_path, rows)))
    assert [row.cells[0].text for row in table.rows] == [str(number) for number in range(400)]


def test_a_timeline_has_a_bar_for_each_span_and_ends_with_the_question():
    marks = timeline(ROW, default_events(ROW))
    kinds = [mark["kind"] for mark in marks]
    assert kinds.count("fetch") == kinds.count("decode") == 3
    assert {"fetch_cancelled", "fetch_failed", "tea_break"} < set(kinds)
    assert marks[0] == {"kind": "index", "start_s": 0.0, "end_s": 0.05}
    [question] = [mark for mark in marks if mark["kind"] == "question_prefill"]
    assert question == {"kind": "question_prefill", "start_s": 1.2, "end_s": 1.4}
    assert [mark["start_s"] for mark in marks] == sorted(mark["start_s"] for mark in marks)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"event": "fetch", "t_s": "soon"},
        {"event": "fetch", "t_s": True},
        {"event": "fetch", "t_s": 10**400},
        {"event": None, "chunk": {}},
    ],
)
def test_an_event_without_a_time_has_no_place(event):
    assert timeline(failed(0, "text", "x"), [event]) == []


def test_a_fault_on_the_timeline_says_which_it_was_and_what_was_done():
    began = {
        "event": "fault",
        "fault": "kill-server@0.3s+1s",
        "detail": "killed with SIGKILL",
        "t_s": 0.3,
        "done_s": 0.31,
    }
    ended = {"event": "fault_ended", "fault": "kill-server@0.3s+1s", "t_s": 1.3, "done_s": 1.4}
    notes = [mark["note"] for mark in timeline(failed(0, "text", "x"), [began, ended])]
    assert notes == ["kill-server@0.3s+1s: killed with SIGKILL", "kill-server@0.3s+1s"]


def test_fields_of_another_type_are_left_out_and_a_span_never_ends_before_it_starts():
    event = {"event": "fetch", "t_s": 0.5, "started_s": 0.9, "chunk": "1", "bytes": None, "encoding": 7}
    assert timeline(failed(0, "text", "x"), [event]) == [{"kind": "fetch", "start_s": 0.5, "end_s": 0.5}]


def test_each_measure_of_the_link_is_set_against_its_limit(tmp_path):
    run = read_run(write_run(tmp_path))
    holds = {check.name: check.holds for check in link_checks(run.summary, run.manifest, run.config)}
    assert holds["rate error per busy second, mean"] is False
    assert holds["rate error per busy second, 95th percentile"] is True
    assert holds["lateness of delayed frames, largest"] is False
    assert holds["round trip before the first request"] is True
    assert holds["new_measure"] is None


def test_a_link_that_was_not_measured_is_not_said_to_hold():
    checks = link_checks({"link": {}}, {}, {})
    assert {check.holds for check in checks} == {None}
    assert {check.measured for check in checks} == {"not measured"}


CPU = {"foreign": 0.3, "own": 0.5, "idle": 0.2, "steal": 0.01, "pressure": 0.1}


@pytest.mark.parametrize(
    ("link", "name", "measured", "holds"),
    [
        ({"excess_ms": 20.1}, "bytes beyond capacity, as time at the peak rate", "20.1 ms", False),
        ({"rtt_ms": 26.9}, "round trip before the first request", "26.90 ms", True),
        ({"rtt_after_ms": 28.1}, "round trip after the last request", "28.10 ms", False),
        ({"queue_max_bytes": 11514}, "most bytes waiting in the queue", "11514", True),
        ({"queue_max_bytes": 11515}, "most bytes waiting in the queue", "11515", False),
        ({}, "frames lost on purpose, way down", "300 of 10000 (3.000%)", False),
        ({}, "frames lost on purpose, way up", "100 of 10000 (1.000%)", True),
        ({"cpu": CPU}, "processors taken by other programs", "30%; somebody waited 10% of the time", True),
        (
            {"cpu": CPU | {"pressure": 0.3}},
            "processors taken by other programs",
            "30%; somebody waited 30% of the time",
            False,
        ),
        ({"cpu": CPU | {"steal": 0.06}}, "processors taken by the machine below", "6.00%", False),
    ],
)
def test_a_measure_is_held_to_what_was_asked_of_the_link(link, name, measured, holds):
    config = {"delay_ms": 10.0, "jitter_ms": 3.0, "loss": 0.01, "queue_bytes": 10_000}
    manifest = {"delay_node": {"lost": {"down": 300, "up": 100}, "passed": {"down": 9700, "up": 9900}}}
    [check] = [check for check in link_checks({"link": link}, manifest, config) if check.name == name]
    assert (check.measured, check.holds) == (measured, holds)
    assert check.limit


def test_a_run_that_the_verdict_calls_valid_has_no_measure_that_is_not_kept():
    link = LinkSettings(delay_ms=10, jitter_ms=3, loss=0.01)
    summary = LinkSummary(1, 10.0, 5.0, (0.01,) * 5, 0.019, 0.1, 9.9, 5, link.queue_bytes, 1e6, 9e5)
    node = {"late_ms": {"p99": 9.0, "max": 49.0}, "drops": {"down": 0, "up": 0}}
    node |= {"lost": {"down": 100, "up": 101}, "passed": {"down": 9900, "up": 9899}}
    verdict = judge(summary, link, rtt_ms=[27.9], delay_report=node, cpu=CpuUse(**CPU))
    assert (verdict.verdict, verdict.reasons) == ("VALID", ())

    figures = {
        "rate_error_mean": summary.rate_error_mean,
        "rate_error_p95": summary.rate_error_p95,
        "excess_ms": 1e3 * summary.excess_s,
        "rtt_ms": 27.9,
        "step_late_p99_ms": summary.step_late_p99_ms,
        "queue_max_bytes": summary.queue_max_bytes,
        "cpu": CPU,
    }
    config = {"delay_ms": 10, "jitter_ms": 3, "loss": 0.01}
    checks = link_checks({"link": figures}, {"delay_node": node}, config)
    assert [check for check in checks if check.holds is False] == []
    assert sum(check.holds is True for check in checks) == 13


def test_all_of_a_file_is_listed_by_its_paths():
    assert flattened({"a": {"b": [1, 2]}, "c": [{"d": None}], "e": {}}) == [
        ("a.b", "[1, 2]"),
        ("c[0].d", "null"),
        ("e", "{}"),
    ]


def test_the_script_has_every_request_with_its_link(tmp_path):
    page = Page(render_page(read_run(write_run(tmp_path))))
    data = json.loads(page.scripts[0])
    assert data["slo_ms"] == SLO_MS
    assert [(row["request"], row["method"]) for row in data["requests"]] == [
        (row.request, row.method) for row in default_rows()
    ]
    link = data["requests"][0]["link"]
    assert set(link["capacity_mbps"]) == {20.0}
    assert set(link["delivered_mbps"]) == {10.0}
    assert len(link["edges_s"]) == len(link["capacity_mbps"]) + 1
    assert not re.search(r"[<>]", page.scripts[0])


def test_the_link_of_a_batch_stands_on_the_time_axis_of_each_of_its_requests(tmp_path):
    rows = [served(0, "text", 1000.0, batch=0), served(1, "text", 1000.0, batch=0, arrival_s=0.55)]
    page = Page(render_page(read_run(write_run(tmp_path, rows))))
    first, second = json.loads(page.scripts[0])["requests"]
    # in tenths from the batch's beginning, up to the end of the chart, a little after the SLO of 1.5 s
    assert first["link"]["edges_s"] == pytest.approx([0.1 * place for place in range(17)])
    assert second["link"]["edges_s"] == pytest.approx([0.0, *(0.05 + 0.1 * place for place in range(15))])
    assert first["shared_with"] == second["shared_with"] == 1
