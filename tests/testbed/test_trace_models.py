"""The shipped traces are what our models say, and the page about them says what they are."""

import math
from pathlib import Path
from random import Random

import pytest

from cachegen.errors import InvalidInputError
from testbed.trace import TRACES_DIR, load_trace, trace_names
from testbed.traces.figure import plot_trace
from testbed.traces.models import MODELS, paper, starlink, synthesize
from testbed.traces.models.draws import walk_around_zero
from testbed.traces.statistics import describe

PAGE = (TRACES_DIR / "README.md").read_text(encoding="utf-8")


def table_row(name):
    """The row of the page's table that a trace must have."""
    found = describe(load_trace(name))
    percentiles = " | ".join(f"{mbps:.4g}" for mbps in found.percentiles_mbps.values())
    outages = f"{100 * found.outage_share:.1f} %, {found.longest_outage_s:.2g} s" if found.outage_s else "none"
    return (
        f"| `{name}` | {found.duration_s:g} | {found.mean_mbps:.4g} | {found.variation:.2f} | {found.min_mbps:.4g} | "
        f"{percentiles} | {found.max_mbps:.4g} | {outages} | {found.autocorrelation:.2f} |"
    )


def test_every_shipped_trace_has_a_model_and_every_model_ships_a_trace():
    assert trace_names() == sorted(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_the_shipped_file_byte_for_byte(name):
    model = MODELS[name]

    assert synthesize(model, model.seed, model.duration_s).encode() == (TRACES_DIR / f"{name}.csv").read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_the_page_states_the_statistics_of_the_shipped_file(name):
    assert table_row(name) in PAGE


@pytest.mark.parametrize("name", MODELS)
def test_the_page_shows_the_picture_of_the_shipped_file(name, tmp_path: Path):
    plot_trace(load_trace(name), tmp_path / "made.svg", as_svg=True)

    assert (tmp_path / "made.svg").read_bytes() == (TRACES_DIR / f"{name}.svg").read_bytes()
    assert f"({name}.svg)" in PAGE


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_another_seed_is_another_trace(name):
    model = MODELS[name]

    assert synthesize(model, model.seed + 1, 60) != synthesize(model, model.seed, 60)


@pytest.mark.parametrize("name", ["lte-driving", "5g-mmwave", "3g", "starlink"])
def test_links_that_lose_service_hold_rows_of_rate_zero(name):
    assert "0.000" in {line.split(",")[1] for line in (TRACES_DIR / f"{name}.csv").read_text().splitlines()}


def test_starlink_changes_its_delay_every_15_seconds_and_never_between():
    trace = load_trace("starlink")
    changes_s = [t for t, a, b in zip(trace.times_s[1:], trace.delays_ms, trace.delays_ms[1:], strict=False) if a != b]

    assert changes_s == [starlink.INTERVAL_S * index for index in range(1, 20)]


def test_the_papers_draws_are_uniform_between_its_bounds_at_the_scale():
    rates_mbps = [row.rate_mbps for _, row in zip(range(20_000), MODELS["paper"].rows(Random(3).random), strict=False)]
    low_mbps, high_mbps = paper.SCALE * paper.LOW_MBPS, paper.SCALE * paper.HIGH_MBPS

    assert low_mbps <= min(rates_mbps)
    assert max(rates_mbps) <= high_mbps
    for quarter in range(1, 4):
        below = sum(rate < low_mbps + quarter / 4 * (high_mbps - low_mbps) for rate in rates_mbps)
        # five standard deviations of a binomial
        assert abs(below / 20_000 - quarter / 4) < 5 * math.sqrt(0.25 / 20_000)


def test_a_walk_has_the_deviation_and_the_memory_it_was_asked_for():
    values = [value for _, value in zip(range(50_000), walk_around_zero(2.0, 0.5, 0.1, Random(1).random), strict=False)]
    variance = sum(value**2 for value in values) / len(values)
    half_second = sum(a * b for a, b in zip(values, values[5:], strict=False)) / len(values) / variance

    assert math.sqrt(variance) == pytest.approx(2.0, rel=0.05)
    assert half_second == pytest.approx(math.exp(-1), abs=0.05)


def test_the_scale_multiplies_every_rate_and_no_delay():
    model = MODELS["starlink"]
    plain, scaled = (synthesize(model, 1, 30, scale).splitlines()[1:] for scale in (1.0, 0.5))

    for before, after in zip(plain, scaled, strict=True):
        (time, rate, delay), (same_time, half, same_delay) = before.split(","), after.split(",")
        assert (time, delay) == (same_time, same_delay)
        assert float(half) == pytest.approx(float(rate) / 2, abs=0.001)


@pytest.mark.parametrize(
    ("duration_s", "scale", "message"),
    [
        (0.0, 1.0, "duration must be"),
        (-5.0, 1.0, "duration must be"),
        (math.nan, 1.0, "duration must be"),
        (math.inf, 1.0, "duration must be"),
        (1e9, 1.0, "duration must be"),
        (10.0, 0.0, "scale must be a positive number, not 0"),
        (10.0, math.inf, "scale must be a positive number"),
    ],
)
def test_impossible_lengths_and_scales_are_refused(duration_s, scale, message):
    with pytest.raises(InvalidInputError, match=message):
        synthesize(MODELS["lte"], 1, duration_s, scale)
