"""What a server has done, as Prometheus reads it.

Written out here: the format is a few lines of text, and the ``prometheus_client`` package would add registries, threads
and a multi-process mode that one event loop has no use for.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from cachegen.stores import UseRecorder

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# From a small object on loopback to a large one over a slow link, a factor of about three apart.
_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass
class ServerMetrics:
    """Counts since the server began."""

    in_flight: int = 0
    sent_bytes: int = 0
    refused_connections: int = 0
    disk_errors: int = 0
    cut_transfers: int = 0
    _requests: Counter[int] = field(default_factory=Counter)
    _latencies: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS_S) + 1))
    _latency_sum_s: float = 0.0

    def add_request(self, status: int, took_s: float) -> None:
        """Count one answer."""
        self._requests[status] += 1
        self._latencies[bisect_left(_BUCKETS_S, took_s)] += 1
        self._latency_sum_s += took_s

    def exposition(self, uses: UseRecorder) -> str:
        """Return all of it in Prometheus' text format, version 0.0.4."""
        lines = [
            *_head("requests_total", "counter", "Answers by HTTP status."),
            *(f'cachegen_requests_total{{status="{code}"}} {n}' for code, n in sorted(self._requests.items())),
        ]
        for name, kind, value, text in (
            ("requests_in_flight", "gauge", self.in_flight, "Requests that are being answered."),
            ("sent_bytes_total", "counter", self.sent_bytes, "Bytes of objects handed to the network."),
            ("refused_connections_total", "counter", self.refused_connections, "Connections beyond the limit."),
            ("disk_errors_total", "counter", self.disk_errors, "Requests that failed by the disk."),
            ("cut_transfers_total", "counter", self.cut_transfers, "Answers cut off: too slow, or the server's stop."),
            ("recorded_uses_total", "counter", uses.recorded, "Uses of contexts that eviction knows of."),
            ("unrecorded_uses_total", "counter", uses.refused, "Uses that the folder took no record of."),
        ):
            lines += [*_head(name, kind, text), f"cachegen_{name} {value}"]
        lines += [*_head("request_seconds", "histogram", "Time from a request's arrival to its answer's end.")]
        below = 0
        for bound_s, count in zip(_BUCKETS_S, self._latencies, strict=False):
            below += count
            lines.append(f'cachegen_request_seconds_bucket{{le="{bound_s:g}"}} {below}')
        total = sum(self._latencies)
        lines += [
            f'cachegen_request_seconds_bucket{{le="+Inf"}} {total}',
            f"cachegen_request_seconds_sum {self._latency_sum_s:.6f}",
            f"cachegen_request_seconds_count {total}",
        ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP cachegen_{name} {text}", f"# TYPE cachegen_{name} {kind}"


def request_counter(metrics: ServerMetrics) -> type[AbstractAccessLogger]:
    """Return an access log that writes nothing and counts: aiohttp shows it malformed requests too."""

    class RequestCounter(AbstractAccessLogger):
        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:  # noqa: ARG002 - aiohttp's
            metrics.add_request(response.status, time)

    return RequestCounter
