"""Whether the link can be trusted: each measure that a verdict rests on, beside its limit."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from testbed.cpu_account import CpuUse
from testbed.fidelity import FidelityLimits, cpu_pressure, others_starve, queue_limit_bytes, rtt_error_ms
from testbed.html_report.provenance import value_text
from testbed.link_settings import LinkSettings
from testbed.loss import LossCount, loss_counts, loss_tolerance

# Figures of ``summary["link"]`` that have a row of their own.
_SHOWN = {
    *("rate_error_mean", "rate_error_p95", "rate_error_max", "busy_seconds", "excess_ms", "rtt_ms", "rtt_after_ms"),
    *("step_late_p99_ms", "queue_max_bytes", "queue_drops", "losses", "cpu"),
}


@dataclass(frozen=True)
class Check:
    """A measure of the link.

    Parameters
    ----------
    name, measured, limit : str
        With units; ``limit`` is empty where there is none.
    holds : bool or None
        Whether the limit is kept; None without a limit or a measurement.
    """

    name: str
    measured: str
    limit: str = ""
    holds: bool | None = None


def link_checks(summary: Mapping[str, Any], manifest: Mapping[str, Any], config: Mapping[str, Any]) -> list[Check]:
    """Return what was measured of the link, beside this release's limits."""
    limits, link, settings = FidelityLimits(), summary["link"], LinkSettings.from_config(config)
    delay_node = manifest.get("delay_node", {})
    late_ms, drops = delay_node.get("late_ms", {}), delay_node.get("drops", {})
    return [
        _share("rate error per busy second, mean", link.get("rate_error_mean"), limits.rate_error_mean),
        _share("rate error per busy second, 95th percentile", link.get("rate_error_p95"), limits.rate_error_p95),
        _share("rate error per busy second, largest", link.get("rate_error_max"), None),
        Check("seconds in which the link was busy", _plain(link.get("busy_seconds"))),
        _ms("bytes beyond capacity, as time at the peak rate", link.get("excess_ms"), 1e3 * limits.excess_s),
        _rtt("round trip before the first request", link.get("rtt_ms"), settings, limits),
        _rtt("round trip after the last request", link.get("rtt_after_ms"), settings, limits),
        _ms("lateness of the trace's steps, 99th percentile", link.get("step_late_p99_ms"), limits.step_late_p99_ms),
        _ms("lateness of delayed frames, 99th percentile", late_ms.get("p99"), limits.frame_late_p99_ms),
        _ms("lateness of delayed frames, largest", late_ms.get("max"), limits.frame_late_max_ms),
        _count("frames lost in the delay node", sum(drops.values()) if drops else None, limits.unexplained_drops),
        *(_loss(count) for count in loss_counts(settings, delay_node)),
        _count("most bytes waiting in the queue", link.get("queue_max_bytes"), queue_limit_bytes(settings)),
        Check("packets refused by the full queue (congestion)", _plain(link.get("queue_drops"))),
        *_processors(link.get("cpu"), limits),
        *(Check(name, _plain(value)) for name, value in link.items() if name not in _SHOWN),
    ]


def _share(name: str, value: float | None, limit: float | None) -> Check:
    if value is None:
        return Check(name, "not measured", "" if limit is None else f"≤ {limit:.0%}")
    return Check(name, f"{value:.2%}", *(() if limit is None else (f"≤ {limit:.0%}", value <= limit)))


def _ms(name: str, value: float | None, limit: float) -> Check:
    if value is None:
        return Check(name, "not measured", f"≤ {limit:g} ms")
    return Check(name, f"{value:.1f} ms", f"≤ {limit:g} ms", value <= limit)


def _rtt(name: str, rtt_ms: float | None, settings: LinkSettings, limits: FidelityLimits) -> Check:
    limit = f"{settings.rtt_ms:g} ± {limits.rtt_error_ms + 2 * settings.jitter_ms:g} ms"
    if rtt_ms is None:
        return Check(name, "not measured", limit)
    return Check(name, f"{rtt_ms:.2f} ms", limit, rtt_error_ms(rtt_ms, settings) <= limits.rtt_error_ms)


def _count(name: str, value: int | None, limit: int) -> Check:
    if value is None:
        return Check(name, "not measured", f"≤ {limit}")
    return Check(name, str(value), f"≤ {limit}", value <= limit)


def _loss(count: LossCount) -> Check:
    return Check(
        f"frames lost on purpose, way {count.name}",
        f"{count.lost} of {count.frames} ({count.lost / count.frames:.3%})",
        f"{count.way.loss:.3%} ± {loss_tolerance(count.way, count.frames):.3%}",
        count.is_chance,
    )


def _processors(measured: Mapping[str, Any] | None, limits: FidelityLimits) -> list[Check]:
    names = ("processors taken by other programs", "processors taken by the machine below")
    limit = f"≤ {limits.cpu_foreign:.0%}, or ≤ {limits.cpu_pressure:.0%} of the time somebody waits"
    if measured is None:
        return [Check(names[0], "not measured", limit), _share(names[1], None, limits.cpu_steal)]
    cpu = CpuUse(**{field.name: measured[field.name] for field in fields(CpuUse)})
    waited = f"{cpu.foreign:.0%}; somebody waited {cpu_pressure(cpu, limits):.0%} of the time"
    return [
        Check("processors taken by the run", f"{cpu.own:.0%}"),
        Check(names[0], waited, limit, not others_starve(cpu, limits)),
        _share(names[1], cpu.steal, limits.cpu_steal),
    ]


def _plain(value: Any) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)
