"""An unsteady machine is told from changed code."""

import random
from dataclasses import replace

from synthetic_runs import make_row

from testbed.compare.pairs import Pair
from testbed.compare.steadiness import by_turn, find_wander

MARGIN = 0.05


def clusters(factor_of, turns=2, requests=10, seed=0):
    """One method: every pair a place of its own, NEW slower by ``factor_of(turn, half)``."""
    rng = random.Random(seed)
    made = []
    for turn in range(turns):
        for request in range(requests):
            half = int(2 * request >= requests)
            base_ms, new_ms = (1000 * rng.lognormvariate(0, 0.03) for _ in range(2))
            rows = make_row(request, "m", base_ms), make_row(request, "m", new_ms * factor_of(turn, half))
            made.append((Pair(*rows, turn, half),))
    return made


def test_slower_code_is_steady():
    assert find_wander([clusters(lambda turn, half: 1.5), clusters(lambda turn, half: 1.0, seed=1)], MARGIN) is None


def test_one_busy_run_and_one_busy_half_are_not():
    for factor_of in (lambda turn, half: 1.3 if turn else 1.0, lambda turn, half: 1.3 if half else 1.0):
        wander = find_wander([clusters(factor_of)], MARGIN)
        assert wander.low < -0.05
        assert wander.high > 0.05


def test_a_wander_within_the_margin_harms_no_verdict():
    assert find_wander([clusters(lambda turn, half: 1.02 if turn else 1.0, requests=200)], MARGIN) is None


def test_a_steady_machine_is_seldom_called_unsteady():
    found = [find_wander([clusters(lambda turn, half: 1.0, seed=seed)], 0.0001) for seed in range(300)]
    # of 300 at 1 %, more than 9 come once in a thousand
    assert sum(wander is not None for wander in found) <= 9


def test_batches_that_have_moods_are_no_unsteady_machine():
    found = []
    for seed in range(100):
        rng = random.Random(seed)
        batches = [clusters(lambda turn, half: 1.0, turns=1, seed=rng.random()) for _ in range(12)]
        moods = [rng.lognormvariate(0, 0.1) for _ in batches]
        # all of a batch lies in one half of the run
        served = [
            tuple(
                Pair(pair.base, replace(pair.new, ttft_ms=pair.new.ttft_ms * mood), 0, int(number >= 6))
                for (pair,) in batch
            )
            for number, (batch, mood) in enumerate(zip(batches, moods, strict=True))
        ]
        found.append(find_wander([served], 0.0001))
    # of 100 at 1 %, more than 5 come once in a thousand
    assert sum(wander is not None for wander in found) <= 5


def test_requests_without_a_first_token_say_nothing_of_the_machine():
    failed = [(Pair(make_row(0, "m", None), make_row(0, "m", 10.0), 0, 0),)] * 20
    assert find_wander([failed], MARGIN) is None


def test_pairs_are_gathered_by_the_runs_they_are_from():
    gathered = by_turn(clusters(lambda turn, half: 1.0, turns=3, requests=4)[::-1])
    assert [[pair.turn for pair in cluster] for cluster in gathered] == [[0] * 4, [1] * 4, [2] * 4]
