"""When a load goes on without its store: neither before it helps nor long after it should have."""

import math

from cachegen.patience import Patience


def verdict(patience, now_s, deadline_s=10.0, recompute_s=4.0, link_s=None):
    return patience.verdict(now_s, deadline_s, recompute_s, link_s)


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


def test_long_after_the_deadline_a_much_quicker_way_is_taken():
    patience = asked()
    patience.heard(12.0, waiting=True)
    assert verdict(patience, 11.9, link_s=100.0) == ""
    assert verdict(patience, 12.0, link_s=15.0) == ""
    assert "recomputing ends sooner" in verdict(patience, 12.0, link_s=17.0)
    assert "recomputing ends sooner" in verdict(patience, 12.0, link_s=None)


def test_a_request_that_begins_after_its_deadline_still_tries_the_store():
    patience = asked(at_s=50.0)
    patience.heard(51.0, waiting=True)
    assert verdict(patience, 51.9, link_s=100.0) == ""
    assert verdict(patience, 52.0, link_s=100.0) != ""


def test_infinite_patience_and_a_load_that_asks_for_nothing_never_give_up():
    assert verdict(asked(limit_s=math.inf), 1e6) == ""
    assert verdict(Patience(2.0), 1e6) == ""
