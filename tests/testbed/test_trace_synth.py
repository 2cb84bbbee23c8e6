"""The shipped traces are what our models say."""

import dataclasses
import subprocess
import sys

import pytest

from cachegen.errors import UnknownNameError
from testbed.trace import TRACES_DIR, load_trace
from testbed.trace_synth import MODELS, synthesize, trace_csv


def test_lte_model_reproduces_the_shipped_file_byte_for_byte():
    made = subprocess.run(
        [sys.executable, "-m", "testbed.trace_synth", "lte"], cwd=TRACES_DIR.parent, capture_output=True, check=True
    )

    assert made.stdout == (TRACES_DIR / "lte.csv").read_bytes()


def test_lte_rates_are_the_ones_the_readme_states():
    rates = sorted(load_trace("lte").rates_mbps)

    assert sum(rates) / len(rates) == pytest.approx(20.9, abs=0.05)
    assert (rates[0], rates[-1]) == (pytest.approx(1.5, abs=0.05), 50.0)
    assert (rates[60], rates[600], rates[1140]) == pytest.approx((7.2, 18.8, 39.8), abs=0.05)


def test_a_model_of_another_seed_is_another_trace():
    assert synthesize(dataclasses.replace(MODELS["lte"], seed=5)) != synthesize(MODELS["lte"])


def test_unknown_model_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="'wifi'; known: lte"):
        trace_csv("wifi")
