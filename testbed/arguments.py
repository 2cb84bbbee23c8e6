"""Command line of the main job, and the one home of its defaults. Standard library only: it runs before set-up."""

import argparse
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_EPILOG = """\
methods: text (recompute), raw, quant8, quant4, quant3; cachegen, cachegen-repo and transform (the paper's adaptation
over all levels of its codec, of the published code's, of this project's own); cachegen-meet and transform-meet
(recomputing and streaming towards each other), cachegen-oracle and transform-oracle (the same, knowing the trace);
cachegen-0 ... cachegen-4, transform-0 ... transform-7 (one level throughout, 0 the finest). h2o-50+METHOD and
lingua-50+METHOD drop half of the KV entries, or of the words, first.

exit status: 0 valid run, 2 bad input or set-up, 3 the link was not what the trace asked for,
5 a program of the run broke down, 130 interrupted (the partial result is kept).
"""


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse ``testbed/run.py``'s flags; ``--help`` and errors end the program as usual."""
    parser = argparse.ArgumentParser(
        prog="testbed/run.py",
        description="Replay a bandwidth trace on an emulated link between a storage host and an inference host, "
        "serve requests for long contexts over it, and report which method met the TTFT objective.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what is compared")
    what.add_argument("--trace", default="lte", metavar="NAME|FILE", help="shipped trace or a recording (default: lte)")
    what.add_argument(
        "--trace-format",
        metavar="NAME",
        help="of that recording (default: recognised by content; python -m testbed.traces list names them)",
    )
    what.add_argument(
        "--series", dest="trace_series", metavar="ID", help="which link, where the recording holds several"
    )
    what.add_argument(
        "--methods",
        default="text,quant8,quant4,cachegen,cachegen-meet",
        metavar="A,B,...",
        help="ways to bring the context (default: %(default)s)",
    )
    what.add_argument(
        "--estimator",
        metavar="NAME",
        help="of throughput, for all methods: last-chunk, harmonic-mean or two-speed (default: what suits each)",
    )
    what.add_argument("--slo-ms", type=float, default=5000.0, help="TTFT objective (default: %(default)g)")
    what.add_argument("--requests", type=int, default=5, help="requests per method (default: %(default)s)")
    what.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: %(default)s)")

    many = parser.add_argument_group("many users")
    many.add_argument(
        "--arrivals",
        default="sequential",
        metavar="PATTERN",
        help="sequential (each request alone), or on one link: poisson:RATE a second, closed:N users, burst:N at once, "
        "trace:FILE (a request log of Azure or Mooncake) (default: %(default)s)",
    )
    many.add_argument(
        "--sharing",
        default="equal",
        metavar="A,B",
        help="how requests share link and compute: equal, deadline, or both (default: %(default)s)",
    )
    many.add_argument(
        "--admission", action="store_true", help="refuse requests at arrival whose deadline could not be held"
    )

    context = parser.add_argument_group("model and contexts")
    context.add_argument("--model", metavar="FOLDER|HUB", help="causal LM (default: SmolLM2-135M-Instruct)")
    context.add_argument(
        "--contexts",
        default="reference",
        metavar="NAME|FILE",
        help="reference (Python's language reference), needle, or a file: plain text, JSON lines of this project, of "
        "LongBench, of LongEval or of hard-needle (default: %(default)s)",
    )
    context.add_argument("--num-contexts", type=int, default=4, help="of them (default: %(default)s)")
    context.add_argument("--context-tokens", type=int, default=2048, help="longest context (default: %(default)s)")
    context.add_argument("--chunk-tokens", type=int, default=512, help="tokens a chunk (default: %(default)s)")

    link = parser.add_argument_group("link")
    link.add_argument(
        "--topology", default="single_link", help="single_link, dumbbell or edge_origin (default: %(default)s)"
    )
    link.add_argument(
        "--cross-traffic", default="onoff", metavar="KIND", help="of a dumbbell: onoff or bulk (default: %(default)s)"
    )
    link.add_argument(
        "--near-share",
        type=float,
        default=0.5,
        help="of the chunks, that edge_origin's cache has (default: %(default)g)",
    )
    link.add_argument("--delay-ms", type=float, default=20.0, help="one-way delay (default: %(default)g)")
    link.add_argument("--jitter-ms", type=float, default=0.0, help="each frame's delay is off by up to this much")
    link.add_argument(
        "--loss", type=_share, default=0.0, metavar="SHARE", help="of frames, as 1%% or 0.01 (default: 0)"
    )
    link.add_argument(
        "--loss-burst", type=float, default=1.0, metavar="FRAMES", help="mean length of a loss (default: %(default)g)"
    )
    link.add_argument("--queue-bytes", type=int, default=256_000, help="bottleneck's queue (default: %(default)s)")
    link.add_argument(
        "--queue-discipline", default="bfifo", metavar="NAME", help="bfifo, codel or fq_codel (default: %(default)s)"
    )
    link.add_argument("--uplink-mbps", type=float, help="constant rate of the way back (default: not limited)")
    link.add_argument("--uplink-delay-ms", type=float, help="one-way delay of the way back (default: --delay-ms)")
    link.add_argument("--uplink-loss", type=_share, metavar="SHARE", help="on the way back (default: --loss)")
    link.add_argument("--pcap", action="store_true", help="keep every frame's headers, for python -m testbed.packets")

    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--faults",
        default="",
        metavar="KIND@START+DURATION,...",
        help="break things during each request, in seconds from its arrival: kill-server@1.5s+2s,link-down@0.5s+10s; "
        "kinds: kill-server, stall-server, slow-disk, link-down, foreign-profile, disk-full, clock-jump, "
        "corrupt-manifest, corrupt-tokens, and corrupt, missing, foreign-chunk: these three :SHARE%% of the objects "
        "(docs/faults.md)",
    )
    faults.add_argument(
        "--tokens-at-gpu",
        action="store_true",
        help="the inference host has the prompt already; by default the text travels too",
    )

    run = parser.add_argument_group("run")
    run.add_argument(
        "--request-timeout-s", type=float, default=60.0, help="give a request up after (default: %(default)g)"
    )
    run.add_argument("--runs", type=Path, default=ROOT / "runs", help="where run directories go (default: runs/)")
    return parser.parse_args(arguments)


def _share(text: str) -> float:
    """Return the share that ``1%`` or ``0.01`` means."""
    number = text.strip()
    return float(number[:-1]) / 100 if number.endswith("%") else float(number)
