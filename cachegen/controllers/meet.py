"""Both ends at once: recompute from the front, stream from the back, re-planned with everything that is learnt.

This goes beyond CacheGen, whose Algorithm 1 does one thing at a time. The plan is made anew at each decision
(:mod:`cachegen.controllers.plan`), with the estimated throughput held constant. In the middle of an object the plan
is compared with the one that gives it up: when the rate collapses so that the deadline breaks, a coarser object or a
recomputation takes its place if that ends clearly sooner.
"""

from collections.abc import Sequence
from dataclasses import replace

from cachegen.controllers.base import (
    Decision,
    LoadState,
    Recompute,
    Stream,
    Transfer,
    predict_finish_s,
)
from cachegen.controllers.plan import (
    ConstantRate,
    LinkForecast,
    Plan,
    each_plan,
    flow_start_s,
    make_plan,
    pick_plan,
)
from cachegen.errors import InvalidInputError
from cachegen.link_use import LinkKnowledge
from cachegen.recompute_cost import IMPOSSIBLE_S

# For the sake of a finer level what is still to be decided may take so many times as long as in the plan that ends
# first: neither the round trip nor what is on its way buys any. A load is then no slower in the mean than text or the
# coarsest level, for about a third of that level's harm (docs/controllers.md).
QUALITY_STRETCH = 1.4
# But never more than this share of the time left: the rest is for links that get slower. With none to spare a level
# chosen to fit exactly misses whenever the rate falls at all.
SAFE_SHARE = 0.7
# What takes no more than this share of the time left is quick enough, whatever the plan that ends first takes.
QUICK_SHARE = 0.02
# An object in flight is given up for a plan that takes this share of the time that its own would.
GIVE_UP_SHARE = 0.8


class MeetController:
    """Recomputation and streaming towards each other, at levels that hold the deadline.

    Parameters
    ----------
    encodings
        Names of the encodings to choose from, finest first; at least one.
    forecast
        What the link will do; default: it keeps the estimated throughput.
    target_share
        Share of the time left that a finer level may take, from 0 (the plan that ends first, whatever its quality) to
        1; default: as ``QUALITY_STRETCH``, ``QUICK_SHARE`` and ``SAFE_SHARE`` say.

    Raises
    ------
    InvalidInputError
        The ladder is empty, or the share is none.
    """

    estimator = "two-speed"

    def __init__(
        self, encodings: Sequence[str], forecast: LinkForecast | None = None, target_share: float | None = None
    ) -> None:
        if not encodings:
            raise InvalidInputError("this controller needs at least one encoding to choose from")
        if target_share is not None and not 0 <= target_share <= 1:
            raise InvalidInputError(f"the share of the time left to spend must be in 0..1, not {target_share}")
        self.encodings = tuple(encodings)
        self._forecast, self._target_share = forecast, target_share

    def before_index(self, known: LinkKnowledge | None) -> str | None:
        """Return what the load before began with; on an unknown link the medium level, as :meth:`decide` would."""
        if known is None or known.throughput_bps is None:
            return self.encodings[len(self.encodings) // 2]
        return known.last_chunk if known.last_chunk in self.encodings else None

    def decide(self, state: LoadState) -> Decision | None:
        """Recompute the first remaining chunk or stream the last one, whichever side is free and has something left."""
        finish_s = predict_finish_s(state)
        forecast = self._forecast_of(state)
        if forecast is None:
            return self._explore(state, finish_s)
        plan = self._plan(state, forecast)
        reason = f"ends at {plan.finish_s:.2f} s with {plan.names.count(None)} of {len(plan.names)} recomputed"
        planned_s = plan.finish_s if plan.finish_s < IMPOSSIBLE_S else None
        if state.may_recompute and plan.names[0] is None and state.remaining[0].recomputable:
            return Decision(state.remaining[0].index, Recompute(), finish_s, reason, planned_s)
        if not state.may_fetch:
            return None
        for chunk, name in zip(reversed(state.remaining), reversed(plan.names), strict=True):
            if name is not None:
                return Decision(chunk.index, Stream(name), finish_s, reason, planned_s)
        return self._probe(state, finish_s)

    def _probe(self, state: LoadState, finish_s: dict[str, float | None]) -> Decision | None:
        """Where nothing seems worth streaming and nothing is on its way, a link that is back would not be noticed."""
        last = state.remaining[-1]
        if state.in_flight or (len(state.remaining) < 2 and last.recomputable):
            return None
        coarsest = next((name for name in reversed(self.encodings) if name in last.sizes_bytes), None)
        if coarsest is None:
            return None
        return Decision(last.index, Stream(coarsest), finish_s, "the link seems too slow: coarsest, to see")

    def review(self, state: LoadState) -> tuple[int, ...]:
        """Give up the object in flight without which the load ends clearly sooner, if the deadline breaks with it."""
        forecast = self._forecast_of(state)
        if forecast is None:
            return ()
        kept = self._plan(state, forecast)
        if kept.finish_s <= state.deadline_s:
            return ()
        for transfer in state.in_flight:
            remaining = sorted((*state.remaining, transfer.options), key=lambda chunk: chunk.index)
            others = tuple(other for other in state.in_flight if other is not transfer)
            freed = replace(
                state,
                remaining=tuple(remaining),
                in_flight=others,
                decode_s=max(0.0, state.decode_s - transfer.decode_s),
            )
            without = self._plan(freed, forecast)
            sooner = without.finish_s - state.elapsed_s < GIVE_UP_SHARE * (kept.finish_s - state.elapsed_s)
            if sooner and self._is_next(state, transfer, without.names[remaining.index(transfer.options)]):
                return (transfer.index,)
        return ()

    def _is_next(self, state: LoadState, transfer: Transfer, name: str | None) -> bool:
        """Whether something better would be done with the chunk at once: else its object may as well go on arriving."""
        if name is not None:
            return name != transfer.encoding_name
        first = min((chunk.index for chunk in state.remaining), default=transfer.index)
        return state.may_recompute and transfer.options.recomputable and transfer.index <= first

    def _forecast_of(self, state: LoadState) -> LinkForecast | None:
        if self._forecast is not None:
            return self._forecast
        return None if state.throughput_bps is None else ConstantRate(state.throughput_bps)

    def _plan(self, state: LoadState, forecast: LinkForecast) -> Plan:
        left_s = max(0.0, state.remaining_s)
        if self._target_share is not None:
            return make_plan(state, self.encodings, forecast, state.elapsed_s + self._target_share * left_s)
        plans = list(each_plan(state, self.encodings, forecast))
        soonest_s = min(plan.finish_s for plan in plans) - state.elapsed_s
        decided_s = min(soonest_s, forecast.arrival_s(flow_start_s(state), state.link_bytes) - state.elapsed_s)
        stretched_s = decided_s + QUALITY_STRETCH * (soonest_s - decided_s)
        return pick_plan(plans, state.elapsed_s + max(QUICK_SHARE * left_s, min(stretched_s, SAFE_SHARE * left_s)))

    def _explore(self, state: LoadState, finish_s: dict[str, float | None]) -> Decision | None:
        """Nothing is known of the link: begin at both ends, with one object of the medium level."""
        first, last = state.remaining[0], state.remaining[-1]
        share = SAFE_SHARE if self._target_share is None else self._target_share
        in_time = first.recompute_s <= share * state.remaining_s
        ladder = [name for name in self.encodings if name in last.sizes_bytes]
        recompute_s = sum(chunk.recompute_s for chunk in state.remaining)
        stream = ladder and not (first is last and recompute_s <= state.remaining_s)
        if stream and state.may_fetch and not state.in_flight:
            name = ladder[len(ladder) // 2]
            return Decision(last.index, Stream(name), finish_s, "no throughput measured yet: medium, from the back")
        # a prefill once begun is carried through: none that would take the time that the link may not need
        if state.may_recompute and (not stream or (first is not last and in_time)):
            return Decision(first.index, Recompute(), finish_s, "no throughput measured yet: from the front")
        return None
