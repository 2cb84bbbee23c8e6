"""The sentences that say why."""

from testbed.explain import explain_method
from testbed.metrics import STAGES


def figures(**changes):
    base = {
        "requests": 6,
        "completed": 6,
        "violations": 0,
        "ttft_ms": {"mean": 5000.0},
        "stages_ms": dict.fromkeys(STAGES, 0.0) | {"fetch": 4500.0, "decode": 500.0},
        "bytes_mean": 12e6,
        "link_mbps_mean": 20.0,
        "levels": {"quant4": 24},
    }
    return base | changes


def test_a_streamed_method_is_measured_against_what_the_link_can_carry():
    text = explain_method("cachegen", figures(violations=6), 4000.0)
    assert text.startswith("Missed the SLO in all 6 requests.")
    assert "fetching 4.50 s (90%), decoding 0.50 s (10%)" in text
    assert "It moves 12.0 MB a request, which takes 4.80 s at the 20.0 Mbit/s" in text
    assert text.endswith("more than the SLO, without anything else.")
    assert "the other 0.20 s of its TTFT are headers" in explain_method("cachegen", figures(), 6000.0)


def test_recomputation_is_measured_against_the_slo_alone():
    stages = dict.fromkeys(STAGES, 0.0) | {"recompute": 5000.0}
    missed = figures(levels={"recompute": 24}, stages_ms=stages, violations=6)
    assert "its prefill of 5.00 s alone exceeds the SLO" in explain_method("text", missed, 4000.0)
    assert "fits into the SLO" in explain_method("text", missed | {"violations": 0}, 6000.0)


def test_mixed_levels_are_listed_and_lost_requests_counted():
    text = explain_method(
        "cachegen", figures(levels={"cachegen-2": 5, "recompute": 3}, completed=4, violations=2), 4000.0
    )
    assert "Missed the SLO in 2 of 6 requests. 2 of them came to no first token." in text
    assert "5 × cachegen-2, 3 × recompute" in text
    assert text.endswith("a chunk that comes slower than the one before makes it late.")


def test_a_method_of_which_nothing_completed_says_so_and_no_more():
    text = explain_method("cachegen", figures(completed=0, violations=6), 4000.0)
    assert text == "Missed the SLO in all 6 requests. 6 of them came to no first token."


def test_only_the_papers_rule_is_said_to_fill_the_time():
    mixed = figures(levels={"cachegen-2": 5, "recompute": 3}, violations=2)
    assert "fills the time" in explain_method("cachegen", mixed, 4000.0)
    for name in ("cachegen-meet@deadline", "transform-meet:0", "h2o-50+cachegen-meet:0.5@equal"):
        assert "fills the time" not in explain_method(name, mixed, 4000.0)
