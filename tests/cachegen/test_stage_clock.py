"""Stages partition the time of a request."""

import threading

import pytest

from cachegen import Stage, StageClock


class FakeTime:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def test_every_instant_is_charged_to_one_stage_and_computing_hides_the_network():
    time = FakeTime()
    clock = StageClock(100.0, time)
    time.now_s = 101.0
    clock.network(Stage.WAIT)
    time.now_s = 101.5
    clock.network(Stage.FETCH)
    time.now_s = 103.5
    with clock.compute(Stage.DECODE):
        time.now_s = 104.0
        clock.network(Stage.WAIT)
        time.now_s = 104.5
    time.now_s = 105.0
    with clock.compute(Stage.QUESTION_PREFILL):
        time.now_s = 105.25

    assert clock.stop() == {
        Stage.QUEUE: 1.0,
        Stage.WAIT: 1.0,
        Stage.FETCH: 2.0,
        Stage.DECODE: 1.0,
        Stage.RECOMPUTE: 0.0,
        Stage.QUESTION_PREFILL: 0.25,
    }
    assert clock.elapsed_s() == pytest.approx(5.25)


def test_stages_sum_to_the_elapsed_time_with_threads_switching_at_random():
    clock = StageClock(0.0)
    clock = StageClock(clock._clock())

    def compute():
        for _ in range(300):
            with clock.compute(Stage.DECODE):
                pass

    thread = threading.Thread(target=compute)
    thread.start()
    for _ in range(300):
        clock.network(Stage.FETCH)
        clock.network(Stage.WAIT)
    thread.join()
    before_s = clock.elapsed_s()
    spent_s = sum(clock.stop().values())

    assert before_s <= spent_s <= clock.elapsed_s()
