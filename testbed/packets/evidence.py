"""Hold a run's captures against its trace and its settings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cachegen import InvalidInputError
from testbed.errors import RunFileError
from testbed.fidelity import FidelityLimits, busy_second_errors, percentile, rtt_error_ms
from testbed.link_account import LinkRow
from testbed.link_file import ReplayOwner, read_link_rows
from testbed.link_settings import LinkSettings, Way
from testbed.loss import loss_tolerance
from testbed.packets.checks import ArrivedBytes, Handshakes, Retransmissions, Strangers
from testbed.packets.frames import Frame, read_frames
from testbed.run_dir import TRACE_COPY
from testbed.run_text import read_object
from testbed.trace import Trace, load_trace

_SENDER, _RECEIVER = "storage", "gpu"
_FULLY_BUSY = 0.999


@dataclass(frozen=True)
class Finding:
    """One line of the result: what was looked at, what was found, and whether it is as it should be."""

    what: str
    found: str
    is_right: bool


class _Check(Protocol):
    def add(self, frame: Frame) -> None: ...


def examine(run: Path) -> list[Finding]:
    """Return what the captures of a run directory show.

    Raises
    ------
    InvalidInputError
        The directory has no captures, or a file of it cannot be read.
    """
    config, manifest = read_object(run / "config.json"), read_object(run / "manifest.json")
    hosts = manifest.get("captures")
    if not hosts:
        raise InvalidInputError(f"{run}: the run kept no frames; testbed/run.py --pcap does")
    link, trace, limits = LinkSettings.from_config(config), _load_trace(run, config), FidelityLimits()
    rows = _busy_rows(run)
    hardware = {host: _hardware(about) for host, about in hosts.items()}
    # frames lost or held up on purpose say nothing of the rate, nor does a delay that changes: then it is seen where
    # they leave the shaper
    delay_s = None if trace.delays_ms is not None else link.counted_delay_s
    starts_s = [row.start_s + (delay_s or 0.0) for row in rows]
    ends_s = [start_s + row.duration_s for start_s, row in zip(starts_s, rows, strict=True)]
    way = (hardware[_SENDER], hardware[_RECEIVER])
    arrived = ArrivedBytes(starts_s, ends_s, *way)
    sent, received = ArrivedBytes([], [], *way), ArrivedBytes([], [], *way)
    handshakes, again = Handshakes(hosts[_RECEIVER]["ip"]), Retransmissions(hosts[_SENDER]["ip"])
    strangers = Strangers([about["ip"] for about in hosts.values()], hardware.values())
    at_sender: list[_Check] = [sent, again, strangers]
    at_receiver: list[_Check] = [received, handshakes, strangers]
    (at_sender if delay_s is None else at_receiver).append(arrived)
    _feed(run / hosts[_SENDER]["file"], at_sender)
    _feed(run / hosts[_RECEIVER]["file"], at_receiver)
    return [
        _completeness(hosts),
        _shared(hosts) or _rate(rows, arrived.sums, trace, limits),
        _round_trip(handshakes, link, trace, limits),
        Finding("retransmissions", f"{again.again} of {again.segments} segments with payload", True),
        _losses(sent.frames, received.frames, link.down),
        _confinement(strangers, hosts),
    ]


def _load_trace(run: Path, config: Mapping[str, Any]) -> Trace:
    """The run's own copy: neither its directory nor the trace has to stay where it was. Older runs have none."""
    copy = run / TRACE_COPY
    if copy.exists():
        return load_trace(copy, "csv")
    return load_trace(config["trace"], config.get("trace_format"), config.get("trace_series"))


@dataclass(frozen=True)
class _BusyRow:
    """A tenth of a second in which a queue stood throughout: when, on the captures' clock, and where in the trace."""

    start_s: float
    duration_s: float
    trace_s: float


def _busy_rows(run: Path) -> list[_BusyRow]:
    """The rows of ``link.csv`` that were fully busy: which these are is all that is not taken from the packets."""
    path, rows = run / "replays.json", []
    try:
        begins_s = {
            ReplayOwner.of(one): (float(one["start_s"]), float(one["trace_offset_s"]))
            for one in read_object(path)["replays"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise RunFileError(f"{path}: no replays of a run: {type(error).__name__}: {error}") from error
    for owner, row in read_link_rows(run / "link.csv"):
        if owner not in begins_s:
            raise RunFileError(f"{path}: has no replay of {owner.kind} {owner.number}, {owner.method}")
        if row.busy_s >= _FULLY_BUSY * row.duration_s:
            start_s, trace_offset_s = begins_s[owner]
            rows.append(_BusyRow(start_s + row.start_s, row.duration_s, trace_offset_s + row.start_s))
    return sorted(rows, key=lambda row: row.start_s)


def _feed(path: Path, checks: Iterable[_Check]) -> None:
    for frame in read_frames(path):
        for check in checks:
            check.add(frame)


def _completeness(hosts: Mapping[str, Any]) -> Finding:
    missed = {host: about["dropped"] + about["unwritten"] for host, about in hosts.items()}
    written = sum(about["written"] for about in hosts.values())
    found = f"{written} frames at {len(hosts)} hosts, {sum(missed.values())} missed"
    return Finding("captured", found, not any(missed.values()))


def _shared(hosts: Mapping[str, Any]) -> Finding | None:
    """What is to be said of the rate where other hosts may use the link too: two hosts' frames are not all of it."""
    others = sorted(hosts.keys() - {_SENDER, _RECEIVER})
    return (
        Finding("rate", f"not judged: the link may also carry frames of {', '.join(others)}", True) if others else None
    )


def _rate(rows: list[_BusyRow], sums: list[int], trace: Trace, limits: FidelityLimits) -> Finding:
    account = []
    for row, delivered in zip(rows, sums, strict=True):
        capacity = trace.capacity_bytes(row.trace_s, row.trace_s + row.duration_s)
        span = (row.duration_s, capacity, float(delivered))
        account.append(LinkRow(row.start_s, row.duration_s, capacity, delivered, *span))
    errors = busy_second_errors(account)
    if not errors:
        return Finding("rate", "the link was never busy for long enough to be compared", True)
    mean, p95 = sum(errors) / len(errors), percentile(errors, 0.95)
    found = f"{mean:.2%} off the trace a busy second on average, {p95:.2%} at the 95th percentile, of {len(errors)}"
    return Finding("rate", found, mean <= limits.rate_error_mean and p95 <= limits.rate_error_p95)


def _round_trip(handshakes: Handshakes, link: LinkSettings, trace: Trace, limits: FidelityLimits) -> Finding:
    if not handshakes.rtt_ms:
        return Finding("round trip", "no connection was opened while frames were captured", True)
    least_ms, planned_ms = min(handshakes.rtt_ms), link.rtt_ms
    found = f"{least_ms:.2f} ms, the least of {len(handshakes.rtt_ms)} handshakes"
    if trace.delays_ms is not None:
        return Finding("round trip", f"{found}; the trace has delays of its own", True)
    is_right = rtt_error_ms(least_ms, link) <= limits.rtt_error_ms
    return Finding("round trip", f"{found}, for {planned_ms:g} ms planned", is_right)


def _losses(sent: int, received: int, way: Way) -> Finding:
    share = (sent - received) / sent if sent else 0.0
    found = f"{sent - received} of {sent} frames to {_RECEIVER} were lost on the way, {way.loss:.2%} asked for"
    return Finding("loss", found, abs(share - way.loss) <= (loss_tolerance(way, sent) if way.loss else 0.0))


def _confinement(strangers: Strangers, hosts: Mapping[str, Any]) -> Finding:
    """Whether nothing left the run's own namespaces: by the frames, and by what the hosts are connected to."""
    doors = [
        f"{host} has the interface {name}"
        for host, about in hosts.items()
        for name, interface in about["interfaces"].items()
        if interface["kind"] not in ("loopback", "veth")
    ]
    doors += [f"{host} has a default route" for host, about in hosts.items() if "default" in about["routes"]]
    odd = [*doors, *(f"{count} × {what}" for what, count in strangers.found.most_common(3))]
    found = "; ".join(odd) or f"all {strangers.frames} frames are between the hosts, which have no way out"
    return Finding("confinement", found, not odd)


def _hardware(about: Mapping[str, Any]) -> str:
    [address] = (one["hardware"] for name, one in about["interfaces"].items() if name != "lo")
    return str(address)
