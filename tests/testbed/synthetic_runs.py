"""Run directories with known answers: written as a run writes them, with drawn TTFTs in place of a network."""

import json
import math
import random
from dataclasses import replace

from testbed.arguments import parse_arguments
from testbed.config import make_config
from testbed.metrics import STAGES, SUMMARY_SCHEMA, RequestRow, summarize_method
from testbed.run_dir import RunDir

# What a TTFT scatters by from place to place of the trace, and when the same place is measured again: of the same order
# as pairs of real runs.
PLACE_SIGMA = 0.3
REPEAT_SIGMA = 0.05


def make_row(request, method, ttft_ms, *, offset_s=None, slo_ms=1000.0, **fields):
    """A row with stages that sum to its TTFT; without one it has failed."""
    offset_s = random.Random(f"0/{request}").uniform(0, 120) if offset_s is None else offset_s
    defaults = {
        "context": f"context-{request % 4}",
        "status": "failed" if ttft_ms is None else "ok",
        "stages_ms": {} if ttft_ms is None else dict.fromkeys(STAGES, 0.0) | {"fetch": ttft_ms},
        "bytes": 1000,
        "agreement": None if ttft_ms is None else 0.96,
        "levels": {"cachegen-2": 4},
    }
    return RequestRow(
        request=request,
        method=method,
        trace_offset_s=offset_s,
        slo_ms=slo_ms,
        ttft_ms=ttft_ms,
        **(defaults | fields),
    )


def draw_rows(draw, requests, methods=("cachegen",), *, slowdown=1.0, seed=0, median_ms=850.0):
    """Rows of one run: the place of the trace sets the TTFT, ``draw`` names this measurement of it."""
    rows = []
    for request in range(requests):
        for method in methods:
            place = random.Random(f"place {seed}/{request}/{method}").gauss(0, PLACE_SIGMA)
            repeat = random.Random(f"repeat {draw}/{seed}/{request}/{method}").gauss(0, REPEAT_SIGMA)
            offset_s = random.Random(f"{seed}/{request}").uniform(0, 120)
            ttft_ms = median_ms * slowdown * math.exp(place + repeat)
            rows.append(make_row(request, method, ttft_ms, offset_s=offset_s))
    return rows


def write_run(parent, rows, *, config=None, manifest=None, summary=None, started="2026-01-01T00:00:00Z"):
    """A run directory below ``parent``; the keywords replace top-level fields. Returns its path."""
    run = RunDir(parent, "lte")
    run.remove_store()
    methods = list(dict.fromkeys(row.method for row in rows))
    made = make_config(parse_arguments(["--requests", str(len({row.request for row in rows}))])).to_json()
    made |= {"methods": methods, "slo_ms": rows[0].slo_ms, **(config or {})}
    run.write_json("config.json", made)
    run.write_json("manifest.json", _manifest(started) | (manifest or {}))
    run.write_json("summary.json", _summary(rows, methods) | (summary or {}))
    for row in rows:
        run.add_request(row)
    return run.path


def edit_json(path, place, value):
    """Replace one value of a JSON file, ``place`` being a dotted path."""
    document = json.loads(path.read_text())
    *way, last = place.split(".")
    inner = document
    for key in way:
        inner = inner[key]
    inner[last] = value
    path.write_text(json.dumps(document))


def slower(rows, factor):
    """The same rows with longer TTFTs."""
    return [
        row
        if row.ttft_ms is None
        else replace(row, ttft_ms=factor * row.ttft_ms, stages_ms=row.stages_ms | {"fetch": factor * row.ttft_ms})
        for row in rows
    ]


def _manifest(started):
    model = {"name": "tiny", "fingerprint": "ab" * 16, "dtype": "float32", "device": "cpu", "threads": 1}
    contexts = [{"name": f"context-{index}", "key": f"{index}", "tokens": 2048} for index in range(4)]
    return {
        "started_utc": started,
        "git": {"commit": "c" * 40, "dirty": False},
        "host": {"cpu": "a processor", "cores": 2, "kernel": "6.1"},
        "python": "3.12.1",
        "packages": {"torch": "2.13.0"},
        "trace": {"name": "lte", "sha256": "5b" * 32, "period_s": 120.0},
        "network": {"backend": "relay"},
        "inference": {"model": model, "contexts": contexts},
    }


def _summary(rows, methods):
    return {
        "schema": SUMMARY_SCHEMA,
        "status": "complete",
        "validity": {"verdict": "VALID", "reasons": [], "notes": []},
        "methods": {name: summarize_method([row for row in rows if row.method == name]) for name in methods},
    }
