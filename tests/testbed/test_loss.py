"""Frames are lost as often, and as many in a row, as asked for."""

from itertools import groupby

import pytest

from testbed.link_settings import Way
from testbed.loss import LossProcess, loss_tolerance

FRAMES = 200_000


@pytest.mark.parametrize(("loss", "burst"), [(0.01, 1.0), (0.2, 1.0), (0.02, 5.0), (0.3, 20.0)])
def test_the_share_and_the_length_of_losses_are_those_asked_for(loss, burst):
    way = Way(0, loss=loss, loss_burst_frames=burst)
    process = LossProcess(way, seed=3)
    fates = [process.loses_next() for _ in range(FRAMES)]
    lengths = [sum(1 for _ in run) for lost, run in groupby(fates) if lost]

    assert sum(fates) / FRAMES == pytest.approx(loss, abs=loss_tolerance(way, FRAMES))
    # without bursts a loss follows a loss by chance alone
    assert sum(lengths) / len(lengths) == pytest.approx(max(burst, 1 / (1 - loss)), rel=0.1)


def test_the_same_seed_loses_the_same_frames_and_another_one_others():
    draws = []
    for seed in (1, 1, 2):
        process = LossProcess(Way(0, loss=0.1), seed)
        draws.append([process.loses_next() for _ in range(1000)])

    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("burst", [1.0, 8.0])
def test_chance_stays_within_the_tolerance_and_twice_the_losses_do_not(burst):
    way = Way(0, loss=0.05, loss_burst_frames=burst)
    for seed in range(50):
        process = LossProcess(way, seed)
        share = sum(process.loses_next() for _ in range(5000)) / 5000
        assert abs(share - 0.05) <= loss_tolerance(way, 5000)
    assert loss_tolerance(way, 20_000) < 0.05


def test_no_frame_says_nothing_and_a_link_that_loses_none_may_lose_none():
    assert loss_tolerance(Way(0, loss=0.1), 0) == 1.0
    assert loss_tolerance(Way(0), 100) < 0.1
