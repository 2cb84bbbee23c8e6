"""Which runs may be held against each other: those that differ in the code under test, and in nothing else."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.compare.runs import VIRTUAL, Run
from testbed.errors import IncomparableError, RunFileError

# What must be equal: together they are the scenario. The profile's hash is not among them, for a codec may change.
_NUMBERS = (
    "config:slo_ms",
    "config:context_tokens",
    "config:chunk_tokens",
    "config:delay_ms",
    "config:queue_bytes",
    "config:request_timeout_s",
)
_FACTS = (
    *_NUMBERS,
    "config:topology",
    "manifest:trace.name",
    "manifest:trace.sha256",
    "manifest:network.backend",
    "manifest:inference.model.fingerprint",
    "manifest:inference.model.dtype",
    "manifest:inference.model.device",
)
_CONTEXTS = "manifest:inference.contexts"
# A modelled run has no network and need have no model.
_ABSENT_IF_VIRTUAL = ("manifest:network.", "manifest:inference.")
# What may differ, but then a difference in TTFT need not be the code's.
_MACHINE = (
    "manifest:host.cpu",
    "manifest:host.cores",
    "manifest:host.kernel",
    "manifest:inference.model.threads",
    "manifest:python",
    "manifest:packages.torch",
)


@dataclass(frozen=True)
class Scenario:
    """Runs of both sides that share every fact.

    Parameters
    ----------
    name : str
        For reports: the trace and the objective, and what else tells it from the other scenarios.
    """

    name: str
    base: tuple[Run, ...]
    new: tuple[Run, ...]

    @property
    def request_timeout_ms(self) -> float:
        """When a request is given up."""
        return 1e3 * float(self.base[0].config["request_timeout_s"])


def match_scenarios(base: Sequence[Run], new: Sequence[Run]) -> list[Scenario]:
    """Scenarios of a comparison, in BASE's order.

    Raises
    ------
    IncomparableError
        The sides differ in tier, or a run has no counterpart; the text names each field with both values.
    RunFileError
        A wall-clock run lacks a fact.
    """
    _check_tier([*base, *new])
    sides = [_group(runs) for runs in (base, new)]
    for (one, other), names in zip((sides, sides[::-1]), (("BASE", "NEW"), ("NEW", "BASE")), strict=True):
        for key, runs in one.items():
            if key not in other:
                raise _no_counterpart(runs[0], [runs[0] for runs in other.values()], names)
    grouped = [(runs, sides[1][key]) for key, runs in sides[0].items()]
    firsts = [runs[0] for runs, _ in grouped]
    return [Scenario(_name(of_base[0], firsts), tuple(of_base), tuple(of_new)) for of_base, of_new in grouped]


def machine_notes(scenarios: Sequence[Scenario]) -> list[str]:
    """Facts of the machines that differ between the sides: what they did to TTFT is no doing of the code."""
    notes = []
    for name in _MACHINE:
        sides = [
            sorted({str(run.fact(name)) for scenario in scenarios for run in getattr(scenario, side)})
            for side in ("base", "new")
        ]
        if sides[0] != sides[1]:
            notes.append(
                f"{_readable(name)} differs ({', '.join(sides[0])} in BASE, {', '.join(sides[1])} in NEW): a "
                "difference in TTFT may be the machine's"
            )
    return notes


def _check_tier(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs:
        if run.tier != first.tier:
            raise IncomparableError(f"config.json tier is {first.tier} in {first.path} and {run.tier} in {run.path}")


def _group(runs: Sequence[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_facts(run)), []).append(run)
    return groups


def _facts(run: Run) -> dict[str, Any]:
    facts = {name: run.fact(name) for name in _FACTS}
    for name, value in facts.items():
        # an absent fact would equal an absent fact
        if value is None and not (run.tier == VIRTUAL and name.startswith(_ABSENT_IF_VIRTUAL)):
            raise RunFileError(f"{run.path}: {_readable(name)} is missing")
        if name in _NUMBERS and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise RunFileError(f"{run.path}: {_readable(name)} must be a number, not {value!r}")
    # not the contexts' keys: those change with the codec's profile
    facts[_CONTEXTS] = [
        [context.get("name"), context.get("tokens")]
        for context in run.fact(_CONTEXTS) or []
        if isinstance(context, dict)
    ]
    return facts


def _no_counterpart(run: Run, others: Sequence[Run], names: tuple[str, str]) -> IncomparableError:
    differences = [_differences(run, other) for other in others]
    nearest = min(range(len(others)), key=lambda index: len(differences[index]))
    fields = "; ".join(
        f"{_readable(name)} is {values[0]} in {names[0]} and {values[1]} in {names[1]}"
        for name, values in differences[nearest].items()
    )
    return IncomparableError(f"{run.path} and {others[nearest].path} cannot be compared: {fields}")


def _differences(run: Run, other: Run) -> dict[str, tuple[Any, Any]]:
    facts, others = _facts(run), _facts(other)
    return {name: (facts[name], others[name]) for name in facts if facts[name] != others[name]}


def _name(run: Run, runs: Sequence[Run]) -> str:
    parts = [f"{run.fact('manifest:trace.name')}", f"SLO {float(run.config['slo_ms']) / 1e3:g} s"]
    told = {"config:slo_ms", "manifest:trace.name"}
    apart = {name for other in runs for name in _differences(run, other)} - told
    parts += [f"{_readable(name).split(' ')[1]} {run.fact(name)}" for name in sorted(apart) if name != _CONTEXTS]
    return ", ".join(parts)


def _readable(name: str) -> str:
    file, _, place = name.partition(":")
    return f"{file}.json {place}"
