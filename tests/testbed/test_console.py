"""What the terminal shows."""

import os
import pty
import sys

import pytest

from testbed.console import RunView


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
