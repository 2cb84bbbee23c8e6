"""``synth``: a trace from one of our models, as shipped or of another seed."""

import argparse
import sys

from testbed.traces.commands.base import add_output
from testbed.traces.models import MODELS, synthesize
from testbed.traces.writing import write_new

HELP = "make a trace by one of the models that the shipped ones come from"
DESCRIPTION = "Make a trace by a model; without further flags it is the shipped one, byte for byte."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("name", metavar="NAME", choices=MODELS, help=", ".join(MODELS))
    parser.add_argument("--seed", type=int, help="of its draws (default: the shipped trace's)")
    parser.add_argument("--duration", type=float, metavar="S", help="length (default: the shipped trace's)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all rates (default: %(default)g)")
    add_output(parser)


def run(options: argparse.Namespace) -> None:
    """See ``Command``."""
    model = MODELS[options.name]
    seed = model.seed if options.seed is None else options.seed
    duration_s = model.duration_s if options.duration is None else options.duration
    text = synthesize(model, seed, duration_s, options.scale)
    write_new(options.output, text, overwrite=options.overwrite)
    sys.stdout.write(f"{options.output}: {options.name}, seed {seed}, {duration_s:g} s, scale {options.scale:g}\n")
