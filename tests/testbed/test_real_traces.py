"""Recordings that others published, against means worked out here by other means than the importers'."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import TraceError
from testbed.trace import TRACES_DIR, load_trace, parse_trace
from testbed.traces.reading import read_recording
from testbed.traces.statistics import describe
from testbed.traces.writing import recording_csv

RECORDINGS = TRACES_DIR.parent.parent / "shared" / "data" / "traces"
pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"no recordings at {RECORDINGS}: they are not ours")


def mahimahi_mean(path):
    stamps_ms = np.loadtxt(path)
    return len(stamps_ms) * 1500 * 8 / (stamps_ms[-1] / 1e3) / 1e6


def two_column_mean(path):
    times_s, rates = np.loadtxt(path).T
    return np.average(rates[:-1], weights=np.diff(times_s))


def sabre_mean(path):
    entries = json.loads(path.read_text())
    durations, rates = ([entry[name] for entry in entries] for name in ("duration_ms", "bandwidth_kbps"))
    return np.average(rates, weights=durations) / 1e3


def g_nettrack_mean(path):
    with path.open() as file:
        return np.mean([float(row["DL_bitrate"]) for row in csv.DictReader(file) if row["State"] == "D"]) / 1e3


def autobahn_mean(path):
    with path.open() as file:
        return np.mean([float(row["download"]) for row in csv.DictReader(file)])


FILES = {
    "mahimahi/ATT-LTE-driving-2016.down": ("mahimahi", mahimahi_mean),
    "mahimahi/ATT-LTE-driving-2016.up": ("mahimahi", mahimahi_mean),
    "norway3g-pensieve/norway_bus_1": ("pensieve", two_column_mean),
    "fcc-pensieve/trace_665192_http---www.facebook.com": ("pensieve", two_column_mean),
    "oboe/oboe_trace_0.txt": ("pensieve", two_column_mean),
    "norway3g-sabre/report.2010-09-13_1003CEST.json": ("sabre", sabre_mean),
    "ghent4g-sabre/report_bicycle_0001.json": ("sabre", sabre_mean),
    "ucc5g/B_2019.12.14_10.16.30.csv": ("g-nettrack", g_nettrack_mean),
    "starlink-autobahn/throughput.cols1-6,9,16.first1000.csv": ("starlink-autobahn", autobahn_mean),
}


@pytest.mark.parametrize("name", FILES)
def test_a_recording_is_recognised_and_keeps_its_mean(name):
    path, (format_name, mean_of) = RECORDINGS / name, FILES[name]
    found, _ = read_recording(path.read_bytes(), path)

    assert found == format_name
    assert describe(load_trace(path)).mean_mbps == pytest.approx(mean_of(path), rel=0.01)


@pytest.mark.parametrize("name", FILES)
def test_an_imported_recording_replays_as_the_file_itself(name):
    path = RECORDINGS / name
    _, recording = read_recording(path.read_bytes(), path)
    direct, written = load_trace(path), parse_trace(recording_csv(recording).encode(), Path("written.csv"))

    assert written.period_s == pytest.approx(direct.period_s, abs=1e-6)
    for time_s in np.linspace(0, 2 * direct.period_s, 50):
        assert written.capacity_bytes(0, time_s) == pytest.approx(direct.capacity_bytes(0, time_s), rel=1e-6, abs=10)


def test_each_packet_of_a_mahimahi_file_is_in_the_bin_of_its_millisecond():
    path = RECORDINGS / "mahimahi/ATT-LTE-driving-2016.up"
    stamps_ms, trace = np.loadtxt(path), load_trace(path)

    for second in range(1, 120):
        # a bin more or less at either end
        expected = 1500 * np.count_nonzero((stamps_ms > 0) & (stamps_ms <= 1000 * second))
        slack = 1500 * np.count_nonzero(np.abs(stamps_ms - 1000 * second) <= 101) + 3000
        assert abs(trace.capacity_bytes(0, second) - expected) <= slack


def test_puffers_cooked_file_is_refused_until_its_unit_is_named():
    [path] = (RECORDINGS / "puffer-cooked").iterdir()
    with pytest.raises(TraceError, match=r"units differ.*--format puffer-cooked"):
        load_trace(path)
    _, recording = read_recording(path.read_bytes(), path, "puffer-cooked")

    mean = np.average(recording.rates_mbps[:-1], weights=np.diff(recording.times_s))
    assert mean == pytest.approx(8 * two_column_mean(path), rel=0.01)


def test_one_number_for_each_pair_of_regions_is_no_trace():
    [path] = (RECORDINGS / "skyplane-cloud").iterdir()
    with pytest.raises(TraceError, match="begins no known format"):
        load_trace(path)


def test_the_model_of_a_drive_is_like_the_drive_that_it_was_fitted_to():
    ours = describe(load_trace("lte-driving"))
    theirs = describe(load_trace(RECORDINGS / "mahimahi/ATT-LTE-driving-2016.down"))

    assert ours.mean_mbps == pytest.approx(theirs.mean_mbps, rel=0.05)
    assert ours.variation == pytest.approx(theirs.variation, rel=0.15)
    assert ours.outage_share == pytest.approx(theirs.outage_share, abs=0.02)
    assert ours.autocorrelation == pytest.approx(theirs.autocorrelation, abs=0.1)
