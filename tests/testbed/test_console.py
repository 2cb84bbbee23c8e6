"""What the terminal shows."""

import os
import pty
import sys

import pytest
from example_run import served

from testbed.console import RunView
from testbed.metrics import summarize_method


def closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def closed_terminal():
    outer, inner = pty.openpty()
    os.close(outer)
    return inner


@pytest.mark.parametrize("make_output", [closed_pipe, closed_terminal])
def test_a_reader_that_has_gone_stops_nothing(monkeypatch, make_output):
    with open(make_output(), "w") as stream:  # noqa: PTH123 - a descriptor, no path
        monkeypatch.setattr(sys, "stdout", stream)
        with RunView() as view:
            view.step("requests", 0, 2)
            view.note("lost")
            view.step("requests", 2, 2)


@pytest.mark.parametrize("reference", [{}, {"score_mean": 0.5}])
def test_the_table_fits_a_terminal_with_whole_numbers_and_the_interval_of_the_violation_rate(
    monkeypatch, capsys, reference
):
    monkeypatch.setenv("COLUMNS", "80")
    name = "transform-meet@deadline"
    figures = summarize_method([served(request, name, 1600.0, score=0.25) for request in range(16)])
    validity = {"verdict": "VALID", "reasons": [], "notes": []}
    summary = {"trace": "lte", "slo": {"ttft_ms": 1500.0}, "status": "complete", "validity": validity}
    with RunView() as view:
        view.results({**summary, "methods": {name: figures}, "reference": reference}, "runs/x")
    shown = capsys.readouterr().out

    assert max(map(len, shown.splitlines())) <= 80
    for number in ("0 of 16", "100% [81, 100]", " 1.60 ", " 1.00 ", " 0.0850 ", *([" 0.25 "] * bool(reference))):
        assert number in shown
