"""When a load goes on without its store: neither before it helps nor long after it should have."""

import math

import pytest

from cachegen import InvalidInputError, LoadLimits
from cachegen.patience import Patience


def verdict(patience, now_s, deadline_s=10.0, recompute_s=4.0, missing_bytes=1000):
    return patience.verdict(now_s, deadline_s, recompute_s, missing_bytes)


def asked(at_s=0.0, limit_s=2.0):
    patience = Patience(limit_s)
    patience.asked(at_s)
    return patience


def test_a_silent_store_is_given_up_while_recomputing_still_holds_the_deadline():
    assert verdict(asked(), 1.9) == ""
    assert verdict(asked(), 2.0) == "silent for 2.0 s"


def test_when_recomputing_would_miss_too_the_store_has_until_the_deadline():
    assert verdict(asked(), 7.0) == ""
    assert verdict(asked(), 10.0) == "silent for 10.0 s"


def test_signs_of_life_end_the_silence():
    patience = asked()
    patience.heard(5.0, waiting=True)
    assert verdict(patience, 6.0) == ""
    assert verdict(patience, 7.0, recompute_s=1.0) == "silent for 2.0 s"


def test_who_waits_for_nothing_hears_no_silence():
    patience = asked()
    patience.heard(1.0, waiting=False)
    assert verdict(patience, 9.0, recompute_s=0.5) == ""
    patience.asked(9.0)
    assert verdict(patience, 10.5, recompute_s=0.5) == ""


def trickle(patience, from_s, until_s, bytes_per_s):
    """Let bytes come evenly, ten times a second."""
    for tick in range(round(10 * from_s) + 1, round(10 * until_s) + 1):
        patience.heard(tick / 10, True, bytes_per_s // 10)


def test_one_timeout_after_the_deadline_the_quicker_way_is_taken():
    patience = asked()
    trickle(patience, 0.0, 12.0, 100)
    assert verdict(patience, 11.9, missing_bytes=10_000) == ""
    assert "401 bytes are missing, at 100 bytes/s" in verdict(patience, 12.0, missing_bytes=401)
    assert verdict(patience, 12.0, missing_bytes=400) == ""


def test_what_the_link_was_before_the_last_timeout_counts_for_nothing():
    patience = asked()
    trickle(patience, 0.0, 10.0, 1_000_000)
    trickle(patience, 10.0, 12.0, 10)
    assert "at 10 bytes/s" in verdict(patience, 12.0, missing_bytes=1000)

    patience = asked()
    trickle(patience, 0.0, 10.0, 10)
    trickle(patience, 10.0, 12.0, 1000)
    assert verdict(patience, 12.0, missing_bytes=4000) == ""


def test_a_store_without_a_byte_is_given_up_though_it_lives():
    patience = asked()
    patience.heard(11.0, waiting=True)
    assert "at 0 bytes/s" in verdict(patience, 12.0)


def test_time_without_a_request_makes_no_link_slow():
    patience = asked()
    trickle(patience, 0.0, 1.0, 1000)
    patience.heard(1.0, waiting=False)
    patience.asked(13.0)
    assert verdict(patience, 13.0, missing_bytes=4000) == ""


def test_a_link_that_promised_to_be_sooner_is_held_to_that():
    patience = asked()
    trickle(patience, 0.0, 12.0, 1000)
    assert verdict(patience, 12.0, missing_bytes=3900) == ""
    trickle(patience, 12.0, 16.0, 1000)
    assert verdict(patience, 15.9, missing_bytes=3900) == ""
    assert "are missing" in verdict(patience, 16.0, missing_bytes=3900)


def test_what_cannot_be_recomputed_is_waited_for():
    patience = asked()
    assert verdict(patience, 100.0, recompute_s=1e9) == ""
    patience.heard(100.0, True, 1)
    assert verdict(patience, 101.0, recompute_s=1e9, missing_bytes=10**9) == ""


def test_a_request_that_begins_after_its_deadline_still_tries_the_store():
    patience = asked(at_s=50.0)
    patience.heard(51.0, waiting=True)
    assert verdict(patience, 51.9) == ""
    assert verdict(patience, 52.0) != ""


def test_infinite_patience_and_a_load_that_asks_for_nothing_never_give_up():
    assert verdict(asked(limit_s=math.inf), 1e6) == ""
    assert verdict(Patience(2.0), 1e6) == ""


@pytest.mark.parametrize("limits", [{"patience_s": 0.0}, {"patience_s": float("nan")}, {"in_flight": 0}])
def test_limits_that_let_nothing_happen_are_refused_by_name(limits):
    with pytest.raises(InvalidInputError, match=f"{next(iter(limits))} is .* must be positive"):
        LoadLimits(**limits)
