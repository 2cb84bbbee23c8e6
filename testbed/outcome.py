"""What a run has found out: recorded as it comes, turned into summary, report and picture at its end."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cachegen import CachegenError, describe_environment
from testbed.config import RunConfig
from testbed.cpu_account import CpuUse
from testbed.fidelity import LinkSummary, Verdict, judge, summarize
from testbed.link_account import link_rows
from testbed.loss import loss_counts
from testbed.metrics import SUMMARY_SCHEMA, RequestRow, summarize_method, summarize_reference
from testbed.replay import ReplayLog
from testbed.report import write_reports
from testbed.run_dir import RunDir
from testbed.sampler import LinkSamples
from testbed.trace import Trace
from testbed.traces.facts import trace_facts

# Of the installed distributions, those that a run's result depends on.
_PACKAGES = ("aiohttp", "mininet", "numba", "numpy", "torch", "transformers", "xxhash")


class RunRecord:
    """Rows, link measurements and facts of one run.

    Parameters
    ----------
    config : RunConfig
        Of the run.
    trace : Trace
        The link's.
    run_dir : RunDir
        Receives rows as they come, and everything else at the end.
    command : list of str
        What the user typed.

    Attributes
    ----------
    status : str
        ``running``, then ``complete``, ``interrupted`` or ``broken``; a run that was killed stays ``running``.
    network, inference, delay_report : dict
        What network, inference host and delay node say of themselves.
    samples : LinkSamples or None
        Readings of the link over the whole run.
    cpu : CpuUse or None
        Of the time in which requests were served.
    captures : dict
        What was captured at each host; empty without ``--pcap``.
    """

    def __init__(self, config: RunConfig, trace: Trace, run_dir: RunDir, command: list[str]) -> None:
        self._config, self._trace, self._dir = config, trace, run_dir
        self._environment = describe_environment(command, _PACKAGES)
        self._batches: list[tuple[list[RequestRow], ReplayLog]] = []
        self.status = "running"
        self._notes: tuple[str, ...] = ()
        self.network: dict[str, Any] = {}
        self.inference: dict[str, Any] = {}
        self.delay_report: dict[str, Any] = {}
        self.captures: dict[str, Any] = {}
        self.samples: LinkSamples | None = None
        self.cpu: CpuUse | None = None

    def add(self, rows: list[RequestRow], log: ReplayLog) -> None:
        """Record the served requests of a batch and the replay that went with them."""
        self._batches.append((rows, log))
        for row in rows:
            self._dir.add_request(row)

    @property
    def _rows(self) -> list[RequestRow]:
        return [row for rows, _ in self._batches for row in rows]

    def break_off(self, error: CachegenError) -> None:
        """Mark the run as broken, and say by what."""
        self.status = "broken"
        # the first line says what happened; a program's last words, below it, are in its log
        self._notes = (f"broken off: {str(error).splitlines()[0]}",)

    def begin(self) -> None:
        """Leave a mark that stays if the run is killed: a summary without results, whose status is ``running``."""
        self._dir.write_json("summary.json", self._summary_of_nothing())

    def finish(self) -> dict[str, Any]:
        """Write manifest, summary and, if a request was served, link, table and reports; return the summary."""
        manifest = {
            **self._environment,
            "trace": trace_facts(self._trace),
            "network": self.network,
            "delay_node": self.delay_report,
            "inference": self.inference,
            **({"captures": self.captures} if self.captures else {}),
        }
        self._dir.write_json("manifest.json", manifest)
        if not self._rows or self.samples is None:
            summary = self._summary_of_nothing()
            self._dir.write_json("summary.json", summary)
            return summary
        self._dir.add_link_rows(self._link_table(self.samples))
        if self.captures:
            self._dir.write_json("replays.json", self._replays())
            # whoever examines the captures needs it, wherever the directory and the trace's file are by then
            self._dir.write_trace(self._trace)
        logs = [log for _, log in self._batches]
        summary = self._summary(summarize(self.samples, logs, self._config.link.counted_delay_s))
        self._dir.write_json("summary.json", summary)
        write_reports(self._dir.path)
        return summary

    def _link_table(self, samples: LinkSamples) -> Iterator[dict[str, Any]]:
        for rows, log in self._batches:
            for tenth in link_rows(samples, log, self._config.link.counted_delay_s):
                yield {**_owner(rows), **asdict(tenth)}

    def _replays(self) -> dict[str, Any]:
        """When each batch's replay was where, on the clock of the captures' stamps."""
        offset_s = time.time() - time.monotonic()
        return {
            "clock": "seconds since 1970, as in the captures",
            "replays": [
                {
                    **_owner(rows),
                    "start_s": log.origin_s + offset_s,
                    "end_s": log.stopped_s + offset_s,
                    "trace_offset_s": log.offset_s,
                }
                for rows, log in self._batches
            ],
        }

    def _summary(self, link: LinkSummary) -> dict[str, Any]:
        labels = [variant.label for variant in self._config.variants]
        methods = [name for name in labels if any(row.method == name for row in self._rows)]
        return {
            **self._summary_head(self._judge(link)),
            "link": {
                "rate_error_mean": link.rate_error_mean,
                "rate_error_p95": link.rate_error_p95,
                "rate_error_max": max(link.rate_errors, default=None),
                "busy_seconds": len(link.rate_errors),
                "excess_ms": 1e3 * link.excess_s,
                "rtt_ms": self.network["rtt_ms"]["min"],
                "rtt_after_ms": self.network["rtt_after_ms"]["min"] if "rtt_after_ms" in self.network else None,
                "step_late_p99_ms": link.step_late_p99_ms,
                "queue_max_bytes": link.queue_max_bytes,
                "queue_drops": link.queue_drops,
                "losses": {
                    count.name: {"lost": count.lost, "frames": count.frames}
                    for count in loss_counts(self._config.link, self.delay_report)
                },
                "cpu": asdict(self.cpu) if self.cpu is not None else None,
            },
            "reference": summarize_reference(self._rows),
            "methods": {name: summarize_method([row for row in self._rows if row.method == name]) for name in methods},
        }

    def _summary_of_nothing(self) -> dict[str, Any]:
        verdict = Verdict("INVALID", ("no request was served",), ())
        return {**self._summary_head(verdict), "link": {}, "reference": {}, "methods": {}}

    def _summary_head(self, verdict: Verdict) -> dict[str, Any]:
        return {
            "schema": SUMMARY_SCHEMA,
            "status": self.status,
            "validity": {
                "verdict": verdict.verdict,
                "reasons": list(verdict.reasons),
                "notes": [*self._notes, *verdict.notes],
            },
            "slo": {"ttft_ms": self._config.slo_ms},
            "trace": self._trace.name,
            "model": self.inference["model"]["name"] if self.inference else self._config.model,
        }

    def _judge(self, link: LinkSummary) -> Verdict:
        return judge(
            link,
            self._config.link,
            rtt_ms=[self.network[name]["min"] for name in ("rtt_ms", "rtt_after_ms") if name in self.network],
            delay_report=self.delay_report,
            cpu=self.cpu,
        )


def _owner(rows: list[RequestRow]) -> dict[str, Any]:
    """Whose a replay is: a batch's; a link that several requests share is no one request's own."""
    request = rows[0].request if len(rows) == 1 else None
    return {"request": request, "batch": rows[0].batch, "method": rows[0].method}
