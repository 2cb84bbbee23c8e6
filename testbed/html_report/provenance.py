"""Whether the link can be trusted, and what the run was made of: the last two parts of the page."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.fidelity import FidelityLimits


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


def link_checks(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[Check]:
    """Return what was measured of the link, beside this release's limits."""
    limits, link = FidelityLimits(), summary["link"]
    network, delay_node = manifest.get("network", {}), manifest.get("delay_node", {})
    late_ms, drops = delay_node.get("late_ms", {}), delay_node.get("drops", {})
    planned_rtt_ms = network.get("planned_rtt_ms")
    rtt_ms = link.get("rtt_ms")
    checks = [
        _share("rate error per busy second, mean", link.get("rate_error_mean"), limits.rate_error_mean),
        _share("rate error per busy second, 95th percentile", link.get("rate_error_p95"), limits.rate_error_p95),
        _share("rate error per busy second, largest", link.get("rate_error_max"), None),
        Check("seconds in which the link was busy", _plain(link.get("busy_seconds"))),
        _rtt(rtt_ms, planned_rtt_ms, limits.rtt_error_ms),
        _ms("lateness of the trace's steps, 99th percentile", link.get("step_late_p99_ms"), limits.step_late_p99_ms),
        _ms("lateness of delayed frames, 99th percentile", late_ms.get("p99"), limits.frame_late_p99_ms),
        _ms("lateness of delayed frames, largest", late_ms.get("max"), limits.frame_late_max_ms),
        _count("frames lost in the delay node", sum(drops.values()) if drops else None, limits.unexplained_drops),
        Check("packets refused by the full queue (congestion)", _plain(link.get("queue_drops"))),
    ]
    shown = {"rate_error_mean", "rate_error_p95", "rate_error_max", "busy_seconds", "rtt_ms", "step_late_p99_ms"}
    others = [Check(name, _plain(value)) for name, value in link.items() if name not in {*shown, "queue_drops"}]
    return checks + others


def _share(name: str, value: float | None, limit: float | None) -> Check:
    if value is None:
        return Check(name, "not measured", "" if limit is None else f"≤ {limit:.0%}")
    return Check(name, f"{value:.2%}", *(() if limit is None else (f"≤ {limit:.0%}", value <= limit)))


def _ms(name: str, value: float | None, limit: float) -> Check:
    if value is None:
        return Check(name, "not measured", f"≤ {limit:g} ms")
    return Check(name, f"{value:.1f} ms", f"≤ {limit:g} ms", value <= limit)


def _rtt(rtt_ms: float | None, planned_ms: float | None, limit_ms: float) -> Check:
    name = "round trip before the first request"
    if rtt_ms is None or planned_ms is None:
        return Check(name, "not measured")
    limit = f"{planned_ms:g} ± {limit_ms:g} ms"
    return Check(name, f"{rtt_ms:.2f} ms", limit, abs(rtt_ms - planned_ms) <= limit_ms)


def _count(name: str, value: int | None, limit: int) -> Check:
    if value is None:
        return Check(name, "not measured", f"≤ {limit}")
    return Check(name, str(value), f"≤ {limit}", value <= limit)


def _plain(value: Any) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else _text(value)


def provenance(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return label and text of what a reader needs to make the run again; what is not recorded is left out."""
    git, host = manifest.get("git", {}), manifest.get("host", {})
    inference, trace = manifest.get("inference", {}), manifest.get("trace", {})
    model, network, costs = inference.get("model", {}), manifest.get("network", {}), manifest.get("costs", {})
    dirty = ", with uncommitted changes" if git.get("dirty") else ""
    facts = [
        ("command", shlex.join(map(str, manifest.get("command", [])))),
        ("started", manifest.get("started_utc")),
        ("commit", f"{git.get('commit') or 'no git'}{dirty}" if git else None),
        ("machine", _join(host.get("cpu"), _unit(host.get("cores"), "cores"), _memory(host.get("memory_bytes")))),
        ("software", _join(_named("Linux", host.get("kernel")), _named("Python", manifest.get("python")))),
        ("packages", ", ".join(f"{name} {version}" for name, version in manifest.get("packages", {}).items())),
        ("model", _join(model.get("name"), model.get("dtype"), _named("on", model.get("device")))),
        ("model fingerprint", model.get("fingerprint")),
        ("profile hash", inference.get("profile_hash")),
        ("trace", _join(trace.get("name"), _named("SHA-256", trace.get("sha256")))),
        ("costs of computing", _join(costs.get("file"), _named("SHA-256", costs.get("sha256")))),
        ("seed of the trace offsets", config.get("seed")),
        ("delay by", _join(network.get("backend"), _named("TCP", network.get("congestion_control")))),
    ]
    return [(label, _text(fact)) for label, fact in facts if fact not in (None, "")]


def flattened(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return every value of a JSON file with its path."""
    return list(_flat(content, ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(inner, Mapping | list) for inner in value):
        for place, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{place}]")
    else:
        yield path, _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _join(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part not in (None, ""))


def _named(name: str, value: Any) -> str:
    return "" if value is None else f"{name} {value}"


def _unit(value: Any, unit: str) -> str:
    return "" if value is None else f"{value} {unit}"


def _memory(size_bytes: Any) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if isinstance(size_bytes, int) else ""
