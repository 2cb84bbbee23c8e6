"""A simple model of a shaped link, to give the account of a link samples whose truth is known."""

import itertools

from testbed.replay import ReplayLog, ReplayStep
from testbed.sampler import LinkReading, append_reading, empty_samples
from testbed.trace import BYTES_PER_MBIT

TICK_S = 0.001
DELAY_S = 0.01
FRAME_BYTES = 1514
ORIGIN_S = 1000.0


def make_log(rates_mbps, step_s=0.1, late_s=0.0, delays_ms=None):
    """A replay whose steps came into force ``late_s`` after they were planned."""
    steps = []
    for i, rate in enumerate(rates_mbps):
        planned_s = ORIGIN_S + i * step_s
        steps.append(ReplayStep(planned_s, planned_s + late_s, rate, delays_ms[i] if delays_ms else None))
    return ReplayLog("model", 0.0, ORIGIN_S, ORIGIN_S + len(rates_mbps) * step_s, tuple(steps))


def run_link(log, demand, speed=1.0, delay_s=DELAY_S, period_s=0.005, lose_every=None):
    """Sample a link that serves ``speed`` times the rate in force to what ``demand`` offers.

    ``demand(t)`` is the bytes offered in the tick that begins ``t`` seconds after the origin. Frames leave whole,
    as tokens allow, and arrive ``delay_s`` later; every ``lose_every``-th is lost on the way.
    """
    samples = empty_samples()
    queue = tokens = sent = received = 0.0
    frames = 0
    travelling = []
    ticks = round((log.stopped_s - log.origin_s + 0.2) / TICK_S)
    for tick in range(-50, ticks):
        now_s = log.origin_s + tick * TICK_S
        if tick % round(period_s / TICK_S) == 0:
            # part of a frame is not there yet
            backlog = int(queue // FRAME_BYTES) * FRAME_BYTES
            append_reading(samples, LinkReading(now_s, int(received), int(sent), backlog, 0))
        queue += demand(tick * TICK_S)
        earned = _rate(log, now_s) * speed * TICK_S
        tokens = min(2 * FRAME_BYTES + earned, tokens + earned)
        while queue >= FRAME_BYTES and tokens > 0:
            queue, tokens, sent = queue - FRAME_BYTES, tokens - FRAME_BYTES, sent + FRAME_BYTES
            frames += 1
            if lose_every is None or frames % lose_every:
                travelling.append(now_s + delay_s)
        while travelling and travelling[0] <= now_s:
            travelling.pop(0)
            received += FRAME_BYTES
    return samples


def _rate(log, now_s):
    in_force = itertools.takewhile(lambda step: step.applied_s <= now_s + TICK_S / 2, log.steps)
    rate_mbps = log.steps[0].rate_mbps
    for step in in_force:
        rate_mbps = step.rate_mbps
    return rate_mbps * BYTES_PER_MBIT


def always(_time_s):
    """A flow that always has data: a queue stands from the first tick on."""
    return 20_000.0


def transfers(size_bytes, gap_s):
    """Transfers of one size at a fixed distance, each offered at once."""
    return lambda time_s: size_bytes if time_s >= 0 and round(time_s / TICK_S) % round(gap_s / TICK_S) == 0 else 0.0
