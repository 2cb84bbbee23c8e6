"""What a run is made of: one frozen, validated value that is written down before the run starts."""

import argparse
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cachegen import InvalidInputError, UnknownNameError, make_estimator, make_sharing
from testbed.arrivals import make_arrivals
from testbed.contexts import is_generator_name, load_contexts
from testbed.cross_traffic import MODES
from testbed.faults.plan import parse_faults
from testbed.link_settings import LinkSettings
from testbed.methods import make_method
from testbed.topologies import TOPOLOGIES
from testbed.trace import Trace, is_trace_name, load_trace

QUALITY_TOKENS = 64  # positions at which a loaded cache is compared with the uncompressed one


@dataclass(frozen=True)
class Variant:
    """A method under a sharing, and what the results call the two."""

    label: str
    method: str
    sharing: str


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Settings of one run.

    Parameters
    ----------
    trace : str
        Name of a shipped trace, or path of a file of any format in ``testbed.traces.importers``.
    trace_format, trace_series : str or None
        Format of that file and which link of it, where its content does not say them.
    methods : tuple of str
        Ways to bring the context to the inference host, see ``testbed.methods``.
    slo_ms : float
        TTFT objective; a request that takes exactly as long meets it.
    requests : int
        Requests per method; request ``i`` has the same context and trace offset under every method.
    contexts : str
        Name of a generator, or path of a file of any form in ``testbed.contexts``.
    num_contexts : int
        Contexts that the requests go round.
    context_tokens, chunk_tokens : int
        Longest context, and the chunk that is coded and streamed on its own.
    model : str or None
        Folder or hub name; None: SmolLM2-135M-Instruct.
    topology : str
        Name in ``testbed.topologies``.
    cross_traffic : str
        Kind of the topology's cross traffic, if it has any: see ``testbed.cross_traffic``.
    near_share : float
        Probability that the near cache, if the topology has one, holds a chunk.
    delay_ms : float
        One-way delay of the link.
    jitter_ms, loss, loss_burst, queue_bytes, queue_discipline, uplink_mbps, uplink_delay_ms, uplink_loss
        Of the link, see :class:`testbed.link_settings.LinkSettings`.
    pcap : bool
        Whether the frames' headers are captured at both hosts.
    request_timeout_s : float
        When a request is given up; it then counts as a violation.
    seed : int
        Of the trace offsets, of random arrivals, generated contexts, cross traffic and the near cache's content.
    arrivals : str
        When requests arrive, see ``testbed.arrivals``.
    sharing : tuple of str
        How requests that meet share link and compute lane, names of ``cachegen.SHARING``; with several, every method
        is run under each.
    admission : bool
        Whether a request whose deadline could not be held is refused at its arrival; it counts as a violation.
    faults : str
        What breaks during each request, see ``testbed.faults``.
    tokens_at_gpu : bool
        Whether the inference host has the contexts' tokens, so that it needs no store to recompute.
    estimator : str or None
        Whose throughput all controllers are told, a name of ``cachegen.ESTIMATORS``; None: to each what suits it.

    Raises
    ------
    InvalidInputError
        A value is out of range, or a name or file is not there; the text names the setting and the value.
    """

    trace: str
    methods: tuple[str, ...]
    slo_ms: float
    requests: int
    contexts: str
    num_contexts: int
    context_tokens: int
    chunk_tokens: int
    model: str | None
    topology: str
    cross_traffic: str
    near_share: float
    delay_ms: float
    jitter_ms: float
    loss: float
    loss_burst: float
    queue_bytes: int
    queue_discipline: str
    uplink_mbps: float | None
    uplink_delay_ms: float | None
    uplink_loss: float | None
    pcap: bool
    request_timeout_s: float
    seed: int
    arrivals: str
    sharing: tuple[str, ...]
    admission: bool
    faults: str = ""
    tokens_at_gpu: bool = False
    estimator: str | None = None
    trace_format: str | None = None
    trace_series: str | None = None

    def __post_init__(self) -> None:
        for name in ("slo_ms", "request_timeout_s"):
            self._check(name, lambda value: math.isfinite(value) and value > 0, "a positive number")
        assert self.link  # its own checks
        for name in ("requests", "num_contexts"):
            self._check(name, lambda value: value >= 1, "at least 1")
        for name in ("context_tokens", "chunk_tokens"):
            self._check(name, lambda value: value >= 2, "at least 2")
        for names in ("methods", "sharing"):
            self._check(names, lambda value: 0 < len(value) == len(set(value)), "distinct names, at least one")
        for name in self.methods:
            make_method(name)
        for name in self.sharing:
            make_sharing(name)
        if self.estimator is not None:
            make_estimator(self.estimator)
        # a log of requests is read here, to be refused before anything is set up
        make_arrivals(self.arrivals).times_s(self.requests, self.seed)
        if self.topology not in TOPOLOGIES:
            raise UnknownNameError(f"no topology {self.topology!r}; there are {', '.join(sorted(TOPOLOGIES))}")
        self._check("cross_traffic", lambda value: value in MODES, f"one of {', '.join(MODES)}")
        self._check("near_share", lambda value: 0 <= value <= 1, "from 0 to 1")
        self.load_trace()
        parse_faults(self.faults)
        load_contexts(self.contexts, self.num_contexts, self.context_tokens, self.seed)

    def _check(self, name: str, holds: Any, wanted: str) -> None:
        value = getattr(self, name)
        if not holds(value):
            raise InvalidInputError(f"{name} must be {wanted}, not {value!r}")

    def to_json(self) -> dict[str, Any]:
        """All settings, as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> "RunConfig":
        """Settings out of ``config.json``."""
        return cls(**settings | {name: tuple(settings[name]) for name in ("methods", "sharing")})

    def load_trace(self) -> Trace:
        """Read the link's trace; errors as :func:`testbed.trace.load_trace` has them."""
        return load_trace(self.trace, self.trace_format, self.trace_series)

    @property
    def link(self) -> LinkSettings:
        """The link, apart from its trace."""
        return LinkSettings.from_config(self.to_json())

    @property
    def variants(self) -> list[Variant]:
        """Every method under every sharing; the sharing is named where there are several."""
        several = len(self.sharing) > 1
        return [
            Variant(f"{method}@{sharing}" if several else method, method, sharing)
            for method in self.methods
            for sharing in self.sharing
        ]

    @property
    def slo_s(self) -> float:
        """TTFT objective in seconds."""
        return self.slo_ms / 1e3


def make_config(options: argparse.Namespace) -> RunConfig:
    """Settings out of the command line; paths become absolute, so that ``config.json`` says which files they were."""
    values = {field.name: getattr(options, field.name) for field in fields(RunConfig)}
    for name in ("methods", "sharing"):
        values[name] = tuple(values[name].split(","))
    kind, _, argument = options.arrivals.partition(":")
    if kind == "trace":
        values["arrivals"] = f"{kind}:{Path(argument).resolve()}"
    if not is_trace_name(options.trace):
        values["trace"] = str(Path(options.trace).resolve())
    if not is_generator_name(options.contexts):
        values["contexts"] = str(Path(options.contexts).resolve())
    if options.model is not None and Path(options.model).exists():
        values["model"] = str(Path(options.model).resolve())
    return RunConfig(**values)
