"""Writes run directories as a run leaves them, with whatever must not break a report."""

import json
from dataclasses import asdict

from testbed.link_account import LinkRow
from testbed.metrics import STAGES, SUMMARY_SCHEMA, RequestRow, summarize_method
from testbed.run_dir import RunDir

SLO_MS = 1500.0
METHODS = ("text", "quant8", "cachegen")
HOSTILE = "</script><script>document.title = 'owned'</script><!-- <b title=\"x\">&amp; '\u2028 ÿ"


def served(request, method, ttft_ms, **changes):
    """A request that came to a first token, by default in seven equal parts of which fetch has two."""
    share = ttft_ms / 7
    values = {
        "request": request,
        "method": method,
        "context": f"context-{request}",
        "trace_offset_s": 10.0 * request,
        "slo_ms": SLO_MS,
        "status": "ok",
        "ttft_ms": ttft_ms,
        "stages_ms": dict.fromkeys(STAGES, share) | {"fetch": 2 * share},
        "bytes": 1_000_000 + request,
        "wasted_bytes": 1000 * request,
        "kl": 0.01 * (request + 1),
        "agreement": 0.9,
        "dppl": 0.1,
        "levels": {"cachegen-1": 1, "cachegen-2": 2} if method == "cachegen" else {method: 3},
        "link_mbps": 20.0,
        "batch": request,
    }
    return RequestRow(**values | changes)


def failed(request, method, error, status="failed"):
    """A request without a first token."""
    return RequestRow(
        request=request,
        method=method,
        context=f"context-{request}",
        trace_offset_s=10.0 * request,
        slo_ms=SLO_MS,
        status=status,
        bytes=4096,
        wasted_bytes=4096,
        error=error,
        batch=request,
    )


def default_rows():
    """Three requests by three methods: met, missed and failed ones."""
    return [
        *(served(request, "text", 2400.0 + 100 * request, kl=0.0, levels={"recompute": 3}) for request in range(3)),
        *(served(request, "quant8", 1600.0 + 300 * request) for request in range(2)),
        failed(2, "quant8", "StoreUnavailableError: the store is gone"),
        served(0, "cachegen", 1200.0),
        served(1, "cachegen", 1500.0),
        served(2, "cachegen", 1700.0),
    ]


def default_events(row):
    """Of three chunks, fetched side by side; one fetch is cancelled, and one event is of a kind of tomorrow."""
    name = {"request": row.request, "method": row.method}
    events = [{"event": "index", "t_s": 0.05, "chunks": 3, "tokens": 384}]
    for chunk in range(3):
        start_s = 0.1 + 0.2 * chunk
        level = f"cachegen-{chunk % 2 + 1}" if row.method == "cachegen" else row.method
        if row.method == "text":
            events.append({"event": "recompute", "t_s": start_s, "chunk": chunk, "started_s": start_s, "ended_s": 0.9})
            continue
        span = {"chunk": chunk, "encoding": level, "started_s": start_s}
        events += [
            {
                "event": "decision",
                "t_s": start_s,
                "chunk": chunk,
                "action": level,
                "reason": "fits",
                "deadline_s": 1.2,
                "throughput_bps": 2e7 if chunk else None,
            },
            {"event": "fetch", "t_s": 0.8, "bytes": 300_000, "ended_s": start_s + 0.5, **span},
            {"event": "decode", "t_s": 0.9, **span, "started_s": start_s + 0.5, "ended_s": start_s + 0.6},
        ]
    events += [
        {"event": "fetch_cancelled", "t_s": 0.7, "chunk": 1, "encoding": "cachegen-1", "started_s": 0.3},
        {"event": "fetch_failed", "t_s": 0.75, "chunk": 1, "encoding": "cachegen-1", "error": "connection reset"},
        {"event": "tea_break", "t_s": 1.0, "started_s": 0.95, "chunk": "no number", "why": ["not", "known"]},
        {"event": "no time at all"},
    ]
    return [{"type": "event", **name, **event} for event in events]


def link_rows(num_rows=20):
    """A link of 20 Mbit/s that carries half of it."""
    return [LinkRow(0.1 * place, 0.1, 250_000.0, 125_000.0, 0.1, 250_000.0, 125_000.0) for place in range(num_rows)]


def write_run(parent, rows=None, *, verdict="VALID", reasons=(), notes=(), status="complete", name="lte", **config):
    """Write a run directory and return its path; ``config`` replaces settings."""
    rows = default_rows() if rows is None else rows
    run = RunDir(parent, "example")
    run.remove_store()
    methods = list(dict.fromkeys(row.method for row in rows))
    settings = {"trace": name, "methods": methods, "slo_ms": SLO_MS, "chunk_tokens": 128, "context_tokens": 384}
    run.write_json("config.json", {**settings, "delay_ms": 10.0, "seed": 7, **config})
    run.write_json("manifest.json", manifest(name))
    for row in rows:
        run.add_request(row)
        for event in default_events(row):
            run.add_event(event)
    for batch, method in dict.fromkeys((row.batch, row.method) for row in rows):
        members = [row.request for row in rows if (row.batch, row.method) == (batch, method)]
        owner = {"request": members[0] if len(members) == 1 else None, "batch": batch, "method": method}
        run.add_link_rows({**owner, **asdict(tenth)} for tenth in link_rows())
    summary = {
        "schema": SUMMARY_SCHEMA,
        "status": status,
        "validity": {"verdict": verdict, "reasons": list(reasons), "notes": list(notes)},
        "slo": {"ttft_ms": SLO_MS},
        "trace": name,
        "model": "tiny-model",
        "link": {
            "rate_error_mean": 0.031,
            "rate_error_p95": 0.04,
            "rate_error_max": 0.09,
            "busy_seconds": 12,
            "rtt_ms": 20.4,
            "step_late_p99_ms": 0.5,
            "queue_drops": 3,
            "new_measure": 1.5,
        },
        "methods": {method: summarize_method([row for row in rows if row.method == method]) for method in methods},
    }
    run.write_json("summary.json", json.loads(json.dumps(summary)))
    return run.path


def manifest(trace_name):
    """A manifest with the fields that reports read."""
    return {
        "started_utc": "2026-11-29T20:55:36Z",
        "command": ["testbed/run.py", "--trace", "a name with spaces"],
        "git": {"commit": "0123456789abcdef", "dirty": True},
        "host": {"kernel": "6.1", "machine": "x86_64", "cpu": "A CPU", "cores": 2, "memory_bytes": 2**34},
        "python": "3.11.7",
        "packages": {"numpy": "2.4.6"},
        "trace": {"name": trace_name, "sha256": "ab" * 32, "period_s": 120.0},
        "network": {
            "topology": "single_link",
            "delay_ms": 10.0,
            "planned_rtt_ms": 20.0,
            "backend": "relay",
            "kernel_lacks": {"netem": "no such qdisc"},
            "congestion_control": "cubic",
        },
        "delay_node": {"drops": {"a": 0, "b": 0}, "late_ms": {"p50": 0.1, "p99": 0.2, "max": 60.0}},
        "inference": {
            "model": {"name": "tiny-model", "fingerprint": "cd" * 16, "dtype": "float32", "device": "cpu"},
            "profile_hash": "ef" * 32,
            "contexts": [{"name": "context-0", "key": "00" * 32, "tokens": 384, "bytes": {"quant8": 900_000}}],
        },
    }
