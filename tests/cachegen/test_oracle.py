"""``oracle`` plans over the future it is told, not over an estimate."""

from dataclasses import dataclass

import pytest

from cachegen.controllers import ChunkOptions, LoadState, Recompute, Stream, make_controller
from cachegen.errors import InvalidInputError

LADDER = ["fine", "coarse"]


@dataclass
class Opens:
    """A link that is shut until a moment, and then brings anything at once."""

    from_s: float

    def arrival_s(self, start_s, size_bytes):
        return max(start_s, self.from_s) if size_bytes else start_s


def make_state(throughput_bps):
    chunks = tuple(ChunkOptions(index, 16, {"fine": 1000, "coarse": 100}, 1.0) for index in range(4))
    return LoadState(0.0, 10.0, chunks, throughput_bps)


@pytest.mark.parametrize("throughput_bps", [None, 0.0, 1e9])
def test_it_waits_for_a_link_that_will_open_and_computes_meanwhile(throughput_bps):
    oracle, state = make_controller("oracle", LADDER, Opens(2.0)), make_state(throughput_bps)

    assert oracle.decide(state).action == Recompute()
    assert "ends at 2.00 s with 2 of 4 recomputed" in oracle.decide(state).reason


@pytest.mark.parametrize("throughput_bps", [None, 0.0, 1e9])
def test_it_leaves_a_link_alone_that_will_not_open(throughput_bps):
    decision = make_controller("oracle", LADDER, Opens(1e9)).decide(make_state(throughput_bps))
    assert "4 of 4 recomputed" in decision.reason


def test_it_takes_the_finest_level_that_the_future_bears():
    state = make_state(1.0)
    slow = LoadState(0.0, 10.0, state.remaining, 1.0, may_recompute=False)
    assert make_controller("oracle", LADDER, Opens(0.0)).decide(slow).action == Stream("fine")


def test_it_has_to_be_told():
    with pytest.raises(InvalidInputError, match="needs to be told what the link will do"):
        make_controller("oracle", LADDER)
    with pytest.raises(InvalidInputError, match="oracle takes no argument, got '1'"):
        make_controller("oracle:1", LADDER, Opens(0.0))
    with pytest.raises(InvalidInputError, match="at least one encoding"):
        make_controller("oracle", [], Opens(0.0))
