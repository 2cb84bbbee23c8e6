"""``import``: a recording of any known format becomes a trace file of the project's own."""

import argparse
import sys
from pathlib import Path

from testbed.trace import trace_of
from testbed.traces.commands.base import add_format, add_output
from testbed.traces.facts import trace_lines
from testbed.traces.reading import find_trace_file, read_recording
from testbed.traces.writing import recording_csv, write_new

HELP = "turn a recording into time_s,rate_mbps[,delay_ms]"
DESCRIPTION = (
    "Turn a recording of any known format into a trace file. Replays read these formats too; importing is for a look "
    "at what comes of one."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("file", type=Path, metavar="FILE", help="recording")
    add_format(parser)
    add_output(parser)


def run(options: argparse.Namespace) -> None:
    """See ``Command``."""
    data = find_trace_file(options.file)
    format_name, recording = read_recording(data, options.file, options.format, options.series)
    write_new(options.output, recording_csv(recording), overwrite=options.overwrite)
    lines = [f"{options.output}: {len(recording.times_s)} rows, from {format_name}"]
    lines += trace_lines(trace_of(recording, data, options.file, format_name))
    sys.stdout.writelines(f"{line}\n" for line in lines)
