"""``show``: statistics and a picture of a trace."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from testbed.trace import load_trace, trace_path
from testbed.traces.commands.base import add_format
from testbed.traces.models import MODELS
from testbed.traces.statistics import LAG_S, TraceStatistics, describe
from testbed.traces.terminal_plot import draw_trace

HELP = "statistics and a picture of a trace"
DESCRIPTION = "Print statistics and a picture of a shipped trace or of a file of any known format."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("trace", metavar="NAME|FILE", help="shipped trace, or file")
    add_format(parser)
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument("--png", type=Path, metavar="FILE", help="write the picture there, not to the terminal")
    picture.add_argument("--svg", type=Path, metavar="FILE", help="the same as SVG")


def run(options: argparse.Namespace) -> None:
    """See ``Command``."""
    path = trace_path(options.trace)
    trace = load_trace(options.trace, options.format, options.series)
    lines = [f"{trace.name}: {path}, format {trace.format_name}", *trace.notes]
    if options.trace in MODELS:
        lines.append(f"{MODELS[options.trace].summary}; {MODELS[options.trace].source}")
    lines += _explain(describe(trace))
    picture = options.png or options.svg
    if picture is None:
        lines += ["", *draw_trace(trace, shutil.get_terminal_size().columns)]
    else:
        from testbed.traces.figure import plot_trace

        plot_trace(trace, picture, as_svg=options.svg is not None)
        lines.append(f"picture: {picture}")
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _explain(found: TraceStatistics) -> Iterator[str]:
    percentiles = ", ".join(f"p{percent} {mbps:.4g}" for percent, mbps in found.percentiles_mbps.items())
    correlation = "– (constant)" if found.autocorrelation is None else f"{found.autocorrelation:.2f}"
    facts = {
        "duration": f"{found.duration_s:.6g} s in {found.rows} rows, then again from its beginning",
        "mean": f"{found.mean_mbps:.4g} Mbit/s over time, coefficient of variation {found.variation:.2f}",
        "range": f"{found.min_mbps:.4g} to {found.max_mbps:.4g} Mbit/s; {percentiles}",
        "outages": f"{found.outage_s:.4g} s at rate 0 ({100 * found.outage_share:.2g} %), "
        f"the longest {found.longest_outage_s:.4g} s",
        "pace": f"correlation of the rate with itself {LAG_S:g} s later: {correlation}",
    }
    if found.delay_ms is not None:
        facts["delay"] = f"{found.delay_ms[0]:g} to {found.delay_ms[1]:g} ms one way"
    for name, fact in facts.items():
        yield f"  {name:<9} {fact}"
