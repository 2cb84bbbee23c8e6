"""What a link does to frames, the same for both backends; each runs where the kernel has what it needs."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.kernel_probe import probe_kernel
from testbed.link_settings import Way
from testbed.loss import loss_tolerance

pytestmark = pytest.mark.alone
ROOT = Path(__file__).resolve().parents[2]
LAB = str(Path(__file__).with_name("network_lab.py"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
# What a run allows itself: beside other work a frame comes late, and it says so.
RTT_TOLERANCE_MS = 2.0


@pytest.fixture(scope="module")
def lacks():
    return probe_kernel().lacks


@pytest.fixture(params=["relay", "netem"])
def link(request, lacks):
    """Build a link, send pings and numbered datagrams over it, and return what came."""
    missing = [f"{name}: {lacks[name]}" for name in ("netem", "bridge") if name in lacks]
    if request.param == "netem" and missing:
        pytest.skip(f"this kernel lacks {'; '.join(missing)} (make test-netem boots one that has it)")

    def build(*, datagrams=50, pings=9, outage=False, delay_later_ms=5.0, **settings):
        wanted = {"link": settings, "backend": request.param, "datagrams": datagrams, "pings": pings}
        wanted |= {"outage": outage, "delay_later_ms": delay_later_ms}
        command = [sys.executable, "-m", "testbed.isolation", sys.executable, LAB, "link", json.dumps(wanted)]
        done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, timeout=120, check=True)
        found = json.loads(done.stdout)
        assert found["settings"]["backend"] == request.param
        return found

    return build


@pytest.mark.parametrize("delay_ms", [5.0, 25.0])
def test_a_round_trip_takes_twice_the_delay_and_follows_its_changes(link, delay_ms):
    found = link(delay_ms=delay_ms, delay_later_ms=delay_ms + 7)

    assert min(found["rtt_ms"]) == pytest.approx(2 * delay_ms, abs=RTT_TOLERANCE_MS)
    assert min(found["rtt_later_ms"]) == pytest.approx(2 * delay_ms + 14, abs=RTT_TOLERANCE_MS)
    assert found["numbers"] == list(range(50))
    assert found["report"]["lost"] == found["report"]["drops"] == {"down": 0, "up": 0}


def test_the_way_back_has_a_delay_and_a_rate_of_its_own(link):
    found = link(delay_ms=5.0, uplink_delay_ms=25.0, uplink_mbps=2.0, delay_later_ms=10.0)

    assert min(found["rtt_ms"]) == pytest.approx(30, abs=RTT_TOLERANCE_MS)
    assert min(found["rtt_later_ms"]) == pytest.approx(35, abs=RTT_TOLERANCE_MS)
    assert found["settings"]["uplink"]["initial_rate_mbps"] == 2.0
    assert found["settings"]["initial_rate_mbps"] == 20.0


def test_jitter_spreads_round_trips_and_keeps_the_order_of_frames(link):
    found = link(delay_ms=10.0, jitter_ms=8.0, pings=40, datagrams=300)

    assert min(found["rtt_ms"]) > 4 - RTT_TOLERANCE_MS
    assert max(found["rtt_ms"]) - min(found["rtt_ms"]) > 8
    assert found["numbers"] == list(range(300))


@pytest.mark.parametrize("burst_frames", [1.0, 6.0])
def test_as_many_frames_are_lost_as_asked_for_in_bursts_of_the_right_length(link, burst_frames):
    sent = 4000
    found = link(delay_ms=2.0, loss=0.1, uplink_loss=0.0, loss_burst_frames=burst_frames, datagrams=sent)
    way = Way(2.0, loss=0.1, loss_burst_frames=burst_frames)
    numbers = found["numbers"]
    gaps = [after - before - 1 for before, after in pairwise(numbers) if after - before > 1]

    assert numbers == sorted(set(numbers))
    assert 1 - len(numbers) / sent == pytest.approx(0.1, abs=loss_tolerance(way, sent))
    # a chance loss may follow a chance loss: 1 / 0.9 on average
    assert sum(gaps) / len(gaps) == pytest.approx(max(burst_frames, 1 / 0.9), rel=0.35)
    assert found["report"]["lost"]["up"] == 0
    assert sum(found["report"]["drops"].values()) == 0


def test_an_outage_holds_every_frame_until_its_end_and_loses_none(link):
    found = link(delay_ms=5.0, outage=True, datagrams=60)

    # the pings before it, and the one frame that slips through the closing gate
    assert found["early"] <= found["settings"]["rtt_ms"]["count"] + 1 + len(found["rtt_ms"]) + 1
    assert found["numbers"] == list(range(60))


@pytest.mark.parametrize("discipline", ["codel", "fq_codel"])
def test_a_queue_discipline_is_set_and_read_back_or_refused_by_name(lacks, link, discipline):
    if discipline in lacks:
        with pytest.raises(subprocess.CalledProcessError):
            link(queue_discipline=discipline)
        return
    assert link(queue_discipline=discipline)["settings"]["queue_discipline"] == discipline
