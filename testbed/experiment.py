"""One run, inside its own namespaces: build the network, prepare, serve every request by every method, report."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cachegen import CachegenError, InvalidInputError
from testbed.arrivals import Batch, make_arrivals, make_batches
from testbed.captures import Captures
from testbed.config import RunConfig, Variant
from testbed.console import RunView
from testbed.cpu_account import CpuWatch
from testbed.cross_traffic import CrossTraffic, total_bytes
from testbed.errors import HostError, LinkError
from testbed.faults.run_faults import RunFaults
from testbed.first_contact import contact_method
from testbed.isolation import interrupt_on_supervisor_exit
from testbed.metrics import STAGES, RequestRow
from testbed.near_cache import fill_near_cache
from testbed.network import EmulatedNetwork
from testbed.outcome import RunRecord
from testbed.processes import InferenceHost, StorageServer
from testbed.replay import LinkReplay, ReplayLog
from testbed.run_dir import RunDir
from testbed.sampler import LinkSampler
from testbed.trace import Trace
from testbed.traces.facts import trace_lines
from testbed.workload import Request, interleave

# Between a request's announcement and its scheduled arrival: long enough for both sides to be ready.
_LEAD_S = 0.25

EXIT_VALID, EXIT_REFUSED, EXIT_INVALID, EXIT_BROKEN, EXIT_INTERRUPTED = 0, 2, 3, 5, 130


class Experiment:
    """A run between its start and its report.

    Parameters
    ----------
    record : RunRecord
        Takes what is found out.
    config : RunConfig
        What to do.
    trace : Trace
        The link's.
    run_dir : RunDir
        Receives rows and events as they come.
    view : RunView
        Shows the user what is going on.
    """

    def __init__(self, record: RunRecord, config: RunConfig, trace: Trace, run_dir: RunDir, view: RunView) -> None:
        self.record = record
        self._config, self._trace, self._dir, self._view = config, trace, run_dir, view
        self._near: StorageServer | None = None

    def run(self) -> None:
        """Serve the whole schedule; what is recorded until an interruption stays recorded."""
        self._faults = RunFaults(self._config, self._dir)
        with (
            self._faults.store_place(self._dir.store),
            EmulatedNetwork(self._config.topology, self._config.link) as network,
        ):
            self.record.network = network.settings
            environment = self._faults.environment
            host = InferenceHost(network, self._dir.path / "gpu.log", _model_threads(), environment)
            settings = {**self._config.to_json(), "store": str(self._dir.store)}
            self.record.inference = host.prepare(settings, self._on_message)
            server = StorageServer(network, self._dir.store, self._dir.path / "storage.log", environment)
            self._near = self._start_near_cache(network)
            self._dir.publish()
            captures = Captures(network, self._dir.path) if self._config.pcap else None
            try:
                with CrossTraffic(
                    network, self._config.cross_traffic, self._config.seed, self._dir.cross_traffic
                ) as others:
                    self._serve_schedule(network, host, server, others)
            finally:
                if captures is not None:
                    self.record.captures = captures.stop()
            self.record.network["cross_traffic_bytes"] = total_bytes(self._dir.cross_traffic)
            self.record.network["rtt_after_ms"] = network.round_trip_ms()

    def _start_near_cache(self, network: EmulatedNetwork) -> StorageServer | None:
        """Start the second server of a topology that has one."""
        if network.near_cache is None:
            return None
        held = fill_near_cache(self._dir.store, self._dir.near_store, self._config.near_share, self._config.seed)
        self.record.network["near_cache"] = held
        return StorageServer(network, self._dir.near_store, self._dir.path / "cache.log", host=network.near_cache)

    def _serve_schedule(
        self, network: EmulatedNetwork, host: InferenceHost, server: StorageServer, others: CrossTraffic
    ) -> None:
        contexts = len(self.record.inference["contexts"])
        arrivals = make_arrivals(self._config.arrivals)
        batches = make_batches(arrivals, self._config.requests, contexts, self._trace.period_s, self._config.seed)
        order = interleave(batches, self._config.variants)
        self._make_contact(batches[0], host, server)
        total, done = self._config.requests * len(self._config.variants), 0
        sampler, replay = LinkSampler(network.read_link), LinkReplay(network)
        sampler.start()
        watch = CpuWatch(network.sessions)
        try:
            for batch, variant in order:
                self._view.step("requests", done, total)
                rows, log = self._serve(batch, variant, host, replay, server)
                # what a dead server or delay node did to a request is no result of the method
                server.check()
                others.check()
                if self._near is not None:
                    self._near.check()
                self.record.delay_report = network.delay_report()
                self.record.add(rows, log)
                for row in rows:
                    done += 1
                    self._view.request(row, done, total)
            self._view.step("requests", total, total)
        finally:
            self.record.cpu = watch.use()
            # the last frames are still on their way for one delay
            time.sleep(2 * self._config.delay_ms / 1e3)
            self.record.samples = sampler.since(0.0)
            sampler.stop()

    def _make_contact(self, batch: Batch, host: InferenceHost, server: StorageServer) -> None:
        """Serve one request that does not count: those that do find connections as a host has that has been at work."""
        method = contact_method(self._config.methods, self.record.inference["contexts"][0])
        if method is None:
            return
        self._view.step("connect", 0, 1)
        variant = replace(self._config.variants[0], method=method)
        message = self._message(batch, variant, time.monotonic() + _LEAD_S, server.url)
        first = {"request": 0, "context": 0, "arrival_s": 0.0}
        host.serve({**message, "requests": [first], "users": None, "label": "", "admission": False}, lambda _: None)
        self._view.step("connect", 1, 1)

    def _serve(
        self, batch: Batch, variant: Variant, host: InferenceHost, replay: LinkReplay, server: StorageServer
    ) -> tuple[list[RequestRow], ReplayLog]:
        origin_s = time.monotonic() + _LEAD_S
        replay.start(self._trace, batch.trace_offset_s, origin_s)
        try:
            with self._faults.during(batch.requests[0].index, variant.label, origin_s, server, replay):
                results = host.serve(self._message(batch, variant, origin_s, server.url), self._on_message)
        finally:
            log = replay.stop()
        rows = [
            self._row(request, batch, variant, result) for request, result in zip(batch.requests, results, strict=True)
        ]
        return rows, log

    def _message(self, batch: Batch, variant: Variant, origin_s: float, store_url: str) -> dict[str, Any]:
        return {
            "requests": [
                {"request": request.index, "context": request.context, "arrival_s": request.arrival_s}
                for request in batch.requests
            ],
            "users": batch.users,
            "method": variant.method,
            "label": variant.label,
            "sharing": variant.sharing,
            "estimator": self._config.estimator,
            "admission": self._config.admission,
            "origin_s": origin_s,
            "trace_offset_s": batch.trace_offset_s,
            "delay_ms": self._config.delay_ms,
            "uplink_delay_ms": self._config.uplink_delay_ms,
            "slo_s": self._config.slo_s,
            "timeout_s": self._config.request_timeout_s,
            "store_url": store_url,
            "tokens_at_gpu": self._config.tokens_at_gpu,
            "faults": bool(self._config.faults),
            "near_url": None if self._near is None else self._near.url,
        }

    def _row(self, request: Request, batch: Batch, variant: Variant, result: dict[str, Any]) -> RequestRow:
        ttft_ms, arrival_s = result.get("ttft_ms"), result["arrival_s"]
        # a request of a closed loop arrives later than was known
        offset_s = (request.trace_offset_s + arrival_s - request.arrival_s) % self._trace.period_s
        return RequestRow(
            request=request.index,
            method=variant.label,
            context=self.record.inference["contexts"][request.context]["name"],
            trace_offset_s=offset_s,
            slo_ms=self._config.slo_ms,
            status=result["status"],
            ttft_ms=ttft_ms,
            stages_ms={stage: result["stages_ms"][stage] for stage in STAGES} if ttft_ms is not None else {},
            bytes=result["bytes"],
            near_bytes=result["near_bytes"],
            wasted_bytes=result["wasted_bytes"],
            kl=result.get("kl"),
            agreement=result.get("agreement"),
            dppl=result.get("dppl"),
            score=result.get("score"),
            reference_score=self.record.inference["contexts"][request.context].get("reference_score"),
            score_name=result.get("score_name", ""),
            answer=result.get("answer", ""),
            levels=result.get("levels", {}),
            link_mbps=self._trace_mean_mbps(offset_s, ttft_ms / 1e3) if ttft_ms is not None else None,
            error=result["error"],
            oracle_ttft_ms=result["oracle_ttft_ms"],
            batch=batch.index,
            sharing=variant.sharing,
            arrival_s=arrival_s,
            ended_s=result["ended_s"],
        )

    def _trace_mean_mbps(self, offset_s: float, duration_s: float) -> float:
        return 8e-6 * self._trace.capacity_bytes(offset_s, offset_s + duration_s) / duration_s

    def _on_message(self, message: dict[str, Any]) -> None:
        """Take what the inference host says between question and answer: progress or events."""
        if "step" in message:
            self._view.step(message["step"], message["done"], message["total"])
        else:
            self._dir.add_event(message)


def run_experiment(config: RunConfig, runs: Path, command: list[str]) -> int:
    """Run, write the run directory, print the table; return the exit status.

    Ctrl-C ends the run early and keeps what there is, marked ``interrupted``. ``command`` is what the user typed.
    """
    trace = config.load_trace()
    run_dir = RunDir(runs, trace.name)
    run_dir.write_json("config.json", config.to_json())
    with RunView() as view:
        experiment = Experiment(RunRecord(config, trace, run_dir, command), config, trace, run_dir, view)
        experiment.record.begin()
        view.note(f"run directory: {run_dir.path}")
        for line in trace_lines(trace):
            view.note(line)
        try:
            experiment.run()
            experiment.record.status = "complete"
        except KeyboardInterrupt:
            experiment.record.status = "interrupted"
            view.note("interrupted: keeping what there is")
        except (HostError, LinkError) as error:
            experiment.record.break_off(error)
            view.note(f"broken off: {error}")
        except InvalidInputError:
            run_dir.remove()
            raise
        finally:
            run_dir.remove_store()
    summary = experiment.record.finish()
    run_dir.publish()
    if summary["methods"]:
        view.results(summary, str(run_dir.path))
    return _exit_status(summary)


def _exit_status(summary: dict[str, Any]) -> int:
    if summary["status"] == "interrupted":
        return EXIT_INTERRUPTED
    if summary["status"] == "broken":
        return EXIT_BROKEN
    return EXIT_VALID if summary["validity"]["verdict"] == "VALID" else EXIT_INVALID


def _model_threads() -> int:
    """All cores but one, which carries the link, the server and the sampling."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def main(argument: str) -> int:
    """Run the job that ``testbed/run.py`` passes on as JSON."""
    interrupt_on_supervisor_exit()
    job = json.loads(argument)
    try:
        return run_experiment(RunConfig.from_json(job["config"]), Path(job["runs"]), job["command"])
    except CachegenError as error:
        sys.stderr.write(f"testbed: {error}\n")
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
