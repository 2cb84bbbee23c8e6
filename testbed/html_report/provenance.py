"""What the run was made of: the last part of the page."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any


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
    return [(label, value_text(fact)) for label, fact in facts if fact not in (None, "")]


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
        yield path, value_text(value)


def value_text(value: Any) -> str:
    """Return a value of a JSON file as a reader sees it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _join(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part not in (None, ""))


def _named(name: str, value: Any) -> str:
    return "" if value is None else f"{name} {value}"


def _unit(value: Any, unit: str) -> str:
    return "" if value is None else f"{value} {unit}"


def _memory(size_bytes: Any) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if isinstance(size_bytes, int) else ""
