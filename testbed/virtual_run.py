"""The deterministic tier: every method over many traces, objectives and context lengths, on a virtual clock.

The real controllers and the real course of a load run on a link that carries exactly what its trace says, with costs
out of a file. There is no TCP and no operating system in it: what it shows is the decisions. The same input gives the
same files to the last bit, on any machine, in minutes.

``python -m testbed.virtual_run -o FOLDER`` writes one run directory for each scenario, of the form of every run, and
``controllers.md`` over all of them.
"""

import argparse
import hashlib
import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachegen import (
    CachegenError,
    InvalidInputError,
    LinkKnowledge,
    make_controller,
    make_estimator,
)
from testbed.arguments import parse_arguments as run_arguments
from testbed.config import RunConfig, make_config
from testbed.controller_report import render_controllers
from testbed.methods import make_method
from testbed.metrics import SUMMARY_SCHEMA, RequestRow, summarize_method
from testbed.oracle_ttft import oracle_ttft_s
from testbed.request_table import write_csv
from testbed.trace import Trace, load_trace, trace_names
from testbed.virtual_costs import DEFAULT_PATH, MeasuredCosts, load_costs
from testbed.virtual_link import LinkFuture, VirtualLink
from testbed.virtual_load import VirtualCosts, VirtualResult, run_virtual_load
from testbed.virtual_stages import stages_of
from testbed.workload import Request, make_schedule

DEFAULT_METHODS = ",".join(
    (
        "text",
        *(f"transform-{level}" for level in range(8)),
        "transform",
        "transform-meet",
        "transform-meet:0",
        "transform-oracle",
    )
)


@dataclass(frozen=True)
class Scenario:
    """One cell of the grid: a link, a context length and an objective."""

    config: RunConfig
    trace: Trace

    @property
    def name(self) -> str:
        """Of its run directory."""
        return f"{self.trace.name}-{self.config.context_tokens}-{self.config.slo_ms:.0f}ms"


class _Loads:
    """Serves the requests of one method, one after the other, each knowing the link from those before."""

    def __init__(self, scenario: Scenario, method: str, costs: MeasuredCosts, oracle_s: dict[Any, float]) -> None:
        # by request and encodings: methods that may choose from the same could at best have had the same
        self._known_oracle_s = oracle_s
        self._config, self._trace, self._costs = scenario.config, scenario.trace, costs
        self._method = make_method(method)
        self._rtt_s = 2 * self._config.delay_ms / 1e3
        self._known: LinkKnowledge | None = None
        question_s = costs.question_s(self._config.context_tokens)
        self._chunks = costs.chunks(self._config.context_tokens, self._config.chunk_tokens, self._method.encodings)
        slowest = max((costs.encodings[name].decode_s_per_token for name in self._method.encodings), default=0.0)
        reserve_s = question_s + slowest * self._config.chunk_tokens
        self._virtual = VirtualCosts(costs.decode_s, reserve_s, question_s)

    def serve(self, request: Request) -> tuple[RequestRow, list[dict[str, Any]]]:
        """Return the request's row and its events."""
        events: list[dict[str, Any]] = []
        head = {"request": request.index, "method": self._method.name}
        future = LinkFuture(self._trace, request.trace_offset_s)
        controller = make_controller(self._method.controller, self._method.encodings, future)
        result = run_virtual_load(
            self._chunks,
            controller,
            make_estimator(self._config.estimator or controller.estimator),
            VirtualLink(future, self._rtt_s),
            self._rtt_s,
            self._config.slo_s,
            self._virtual,
            lambda event, **fields: events.append({**head, "event": event, **fields}),
            give_up_s=self._config.request_timeout_s,
            known=self._known,
        )
        self._known = result.link
        return self._row(request, result, events), events

    def _row(self, request: Request, result: VirtualResult, events: list[dict[str, Any]]) -> RequestRow:
        common: dict[str, Any] = {
            "request": request.index,
            "method": self._method.name,
            "context": f"virtual-{self._config.context_tokens}",
            "trace_offset_s": request.trace_offset_s,
            "slo_ms": self._config.slo_ms,
            "bytes": result.received_bytes,
            "oracle_ttft_ms": 1e3 * self._oracle_s(request),
            "batch": request.index,
            "sharing": "equal",
            "ended_s": min(result.ttft_s, self._config.request_timeout_s),
        }
        if "" in result.chunk_sources or result.ttft_s > self._config.request_timeout_s:
            return RequestRow(
                **common,
                status="timed_out",
                error=f"not done after {self._config.request_timeout_s} s",
                wasted_bytes=result.received_bytes,
            )
        load_s = result.ttft_s - self._virtual.question_s
        sources = result.chunk_sources
        end_s = request.trace_offset_s + result.ttft_s
        return RequestRow(
            **common,
            status="ok",
            wasted_bytes=result.wasted_bytes,
            ttft_ms=1e3 * result.ttft_s,
            stages_ms={
                stage: 1e3 * spent_s for stage, spent_s in stages_of(events, load_s, self._virtual.question_s).items()
            },
            kl=self._mean("kl", sources, 0.0),
            agreement=self._mean("agreement", sources, 1.0),
            levels={name: sources.count(name) for name in sorted(set(sources))},
            link_mbps=8e-6 * self._trace.capacity_bytes(request.trace_offset_s, end_s) / result.ttft_s,
        )

    def _oracle_s(self, request: Request) -> float:
        """Least TTFT, with the encodings of this method."""
        key = request.index, self._method.encodings
        if key not in self._known_oracle_s:
            future = LinkFuture(self._trace, request.trace_offset_s)
            self._known_oracle_s[key] = oracle_ttft_s(
                self._chunks, self._method.encodings, future, self._rtt_s, self._virtual
            )
        return self._known_oracle_s[key]

    def _mean(self, figure: str, sources: Sequence[str], recomputed: float) -> float:
        """Over the chunks, each with what a whole context in its encoding was measured at."""
        values = [
            getattr(self._costs.encodings[name], figure) if name != "recompute" else recomputed for name in sources
        ]
        return float(sum(values) / len(values))


def run_scenario(scenario: Scenario, costs: MeasuredCosts) -> tuple[list[RequestRow], list[dict[str, Any]]]:
    """Serve the scenario's schedule by every method; return rows and events."""
    config = scenario.config
    schedule = make_schedule(config.requests, 1, scenario.trace.period_s, config.seed)
    rows, events = [], []
    oracle_s: dict[Any, float] = {}
    for method in config.methods:
        loads = _Loads(scenario, method, costs, oracle_s)
        for request in schedule:
            row, said = loads.serve(request)
            rows.append(row)
            events += said
    return rows, events


def write_scenario(
    folder: Path, scenario: Scenario, costs_file: Path, rows: list[RequestRow], events: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write a run directory, which must not be there yet; return its summary."""
    folder.mkdir(parents=True)
    config = {**scenario.config.to_json(), "tier": "virtual"}
    manifest = {
        "tier": "virtual",
        "trace": {"name": scenario.trace.name, "sha256": scenario.trace.sha256, "period_s": scenario.trace.period_s},
        "costs": {"file": costs_file.name, "sha256": hashlib.sha256(costs_file.read_bytes()).hexdigest()},
    }
    summary = {
        "schema": SUMMARY_SCHEMA,
        "status": "complete",
        "validity": {
            "verdict": "VALID",
            "reasons": [],
            "notes": ["a virtual link: exactly the trace, by construction"],
        },
        "slo": {"ttft_ms": scenario.config.slo_ms},
        "trace": scenario.trace.name,
        "model": load_costs(costs_file).model,
        "link": {},
        "methods": {
            name: summarize_method([row for row in rows if row.method == name]) for name in scenario.config.methods
        },
    }
    for name, content in (("config.json", config), ("manifest.json", manifest), ("summary.json", summary)):
        (folder / name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    lines = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events)
    (folder / "events.jsonl").write_text(lines, encoding="utf-8")
    write_csv(folder / "requests.csv", rows)
    return summary


def make_scenarios(options: argparse.Namespace, costs: MeasuredCosts) -> list[Scenario]:
    """The grid of the command line; objectives are shares of what recomputing the whole context takes."""
    if not all(0 < share < math.inf for share in options.slo_shares):
        raise InvalidInputError(f"--slo-shares must be above 0 and finite, not {options.slo_shares}")
    scenarios = []
    for name, tokens, share in itertools.product(options.traces, options.context_tokens, options.slo_shares):
        flags = {
            "trace": name,
            "methods": options.methods,
            "slo-ms": round(1e3 * share * costs.text_s(tokens, options.chunk_tokens)),
            "requests": options.requests,
            "num-contexts": 1,
            "context-tokens": tokens,
            "chunk-tokens": options.chunk_tokens,
            "delay-ms": options.delay_ms,
            "request-timeout-s": options.request_timeout_s,
            "seed": options.seed,
            **({"estimator": options.estimator} if options.estimator else {}),
        }
        # everything else as a run has it by default
        config = make_config(run_arguments([f"--{flag}={value}" for flag, value in flags.items()]))
        if reduced := [method for method in config.methods if make_method(method).reduction]:
            raise InvalidInputError(f"method {reduced[0]}: costs are measured of whole contexts, not of reduced ones")
        scenarios.append(Scenario(config, load_trace(name)))
    return scenarios


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m testbed.virtual_run", description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="must not be there yet")
    parser.add_argument("--traces", nargs="+", default=trace_names(), metavar="NAME|FILE", help="default: all shipped")
    parser.add_argument("--methods", default=DEFAULT_METHODS, metavar="A,B,...")
    parser.add_argument("--context-tokens", nargs="+", type=int, default=[2048, 8192], metavar="N")
    parser.add_argument("--chunk-tokens", type=int, default=512, metavar="N")
    parser.add_argument(
        "--slo-shares",
        nargs="+",
        type=float,
        default=[0.25, 0.5, 0.9],
        metavar="SHARE",
        help="objectives, as shares of the time to recompute the context (default: 0.25 0.5 0.9)",
    )
    parser.add_argument("--requests", type=int, default=10, metavar="N", help="per method and scenario (default: 10)")
    parser.add_argument("--delay-ms", type=float, default=20.0, metavar="MS", help="one way (default: 20)")
    parser.add_argument("--request-timeout-s", type=float, default=120.0, metavar="S", help="default: 120")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--estimator", metavar="NAME", help="of all controllers (default: to each what suits it)")
    parser.add_argument("--costs", type=Path, default=DEFAULT_PATH, metavar="FILE")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the grid; return the exit status."""
    options = parse_arguments(arguments)
    try:
        if options.output.exists():
            raise InvalidInputError(f"{options.output}: is there already")
        costs = load_costs(options.costs)
        scenarios = make_scenarios(options, costs)
        found = []
        for scenario in scenarios:
            rows, events = run_scenario(scenario, costs)
            write_scenario(options.output / scenario.name, scenario, options.costs, rows, events)
            found.append((scenario.name, rows))
    except (CachegenError, OSError) as error:
        sys.stderr.write(f"virtual_run: {error}\n")
        return 2
    text = render_controllers(found, options.request_timeout_s)
    (options.output / "controllers.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
