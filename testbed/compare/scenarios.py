"""Which runs may be held against each other: those that differ in the code under test, and in nothing else."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.compare.runs import VIRTUAL, Run
from testbed.errors import IncomparableError, RunFileError

# What must be equal makes the scenario: every setting but these, which name files whose content the manifest tells, or
# what each pair is checked for,
_OTHER_SETTINGS = {"tier", "trace", "model", "contexts", "num_contexts", "methods", "requests", "seed"}
_NEEDED_NUMBERS = ("slo_ms", "context_tokens", "chunk_tokens", "request_timeout_s")
# and of the manifest these. The profile's hash is not among them, for a codec may change.
_FACTS = (
    "manifest:trace.name",
    "manifest:trace.sha256",
    "manifest:network.backend",
    "manifest:inference.model.fingerprint",
    "manifest:inference.model.dtype",
    "manifest:inference.model.device",
    "manifest:costs.sha256",
)
_CONTEXTS = "manifest:inference.contexts"
# A modelled run has no network and need have no model; costs out of a file are its own.
_ABSENT_IF_VIRTUAL = ("manifest:network.", "manifest:inference.")
_ABSENT_IF_MEASURED = ("manifest:costs.",)
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
    _check([*base, *new])
    names = _fact_names([*base, *new])
    sides = [_group(runs, names) for runs in (base, new)]
    for (one, other), labels in zip((sides, sides[::-1]), (("BASE", "NEW"), ("NEW", "BASE")), strict=True):
        for key, runs in one.items():
            if key not in other:
                raise _no_counterpart(runs[0], [runs[0] for runs in other.values()], names, labels)
    grouped = [(runs, sides[1][key]) for key, runs in sides[0].items()]
    firsts = [runs[0] for runs, _ in grouped]
    return [Scenario(_name(of_base[0], firsts, names), tuple(of_base), tuple(of_new)) for of_base, of_new in grouped]


def setting_notes(scenarios: Sequence[Scenario]) -> list[str]:
    """Settings that some runs have and others, of an older or newer release, lack: they could not be compared."""
    runs = [run for scenario in scenarios for run in (*scenario.base, *scenario.new)]
    compared = {*_fact_names(runs), *(f"config:{setting}" for setting in _OTHER_SETTINGS)}
    found = {f"config:{setting}": run for run in runs for setting in run.config}
    return [
        f"{_readable(name)} is {run.fact(name)!r} in {run.path.name}, and not in every run: it was not compared"
        for name, run in found.items()
        if name not in compared
    ]


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


def _check(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs:
        if run.tier != first.tier:
            raise IncomparableError(f"config.json tier is {first.tier} in {first.path} and {run.tier} in {run.path}")
        for setting in _NEEDED_NUMBERS:
            value = run.config.get(setting)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise RunFileError(f"{run.path}: config.json {setting} must be a number, not {value!r}")
        for name in _FACTS:
            # an absent fact would equal an absent fact
            absent = _ABSENT_IF_VIRTUAL if run.tier == VIRTUAL else _ABSENT_IF_MEASURED
            if run.fact(name) is None and not name.startswith(absent):
                raise RunFileError(f"{run.path}: {_readable(name)} is missing")


def _fact_names(runs: Sequence[Run]) -> list[str]:
    """Settings that every run has, and the manifest's facts."""
    common = set.intersection(*(set(run.config) for run in runs)) - _OTHER_SETTINGS
    return [*(f"config:{setting}" for setting in sorted(common)), *_FACTS, _CONTEXTS]


def _group(runs: Sequence[Run], names: Sequence[str]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps([_value(run, name) for name in names]), []).append(run)
    return groups


def _value(run: Run, name: str) -> Any:
    value = run.fact(name)
    if name != _CONTEXTS:
        return value
    # not the contexts' keys: those change with the codec's profile
    return [[context.get("name"), context.get("tokens")] for context in value or [] if isinstance(context, dict)]


def _no_counterpart(
    run: Run, others: Sequence[Run], names: Sequence[str], labels: tuple[str, str]
) -> IncomparableError:
    differences = [_differences(run, other, names) for other in others]
    nearest = min(range(len(others)), key=lambda index: len(differences[index]))
    fields = "; ".join(
        f"{_readable(name)} is {values[0]} in {labels[0]} and {values[1]} in {labels[1]}"
        for name, values in differences[nearest].items()
    )
    return IncomparableError(f"{run.path} and {others[nearest].path} cannot be compared: {fields}")


def _differences(run: Run, other: Run, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    values = {name: (_value(run, name), _value(other, name)) for name in names}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _name(run: Run, runs: Sequence[Run], names: Sequence[str]) -> str:
    parts = [f"{run.fact('manifest:trace.name')}", f"SLO {float(run.config['slo_ms']) / 1e3:g} s"]
    told = {"config:slo_ms", "manifest:trace.name"}
    differences = [_differences(run, other, names).keys() for other in runs]
    # what tells it from those that these two leave alike
    apart = {name for differing in differences if not differing & told for name in differing}
    parts += [f"{_readable(name).split(' ')[1]} {run.fact(name)}" for name in sorted(apart - {_CONTEXTS})]
    if _CONTEXTS in apart:
        parts.append(f"contexts {', '.join(str(context[0]) for context in _value(run, _CONTEXTS))}")
    return ", ".join(parts)


def _readable(name: str) -> str:
    file, _, place = name.partition(":")
    return f"{file}.json {place}"
