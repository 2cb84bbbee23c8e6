"""Command line of the library: ``python -m cachegen COMMAND``."""

import argparse
import os
import sys
from collections.abc import Sequence

from cachegen.commands import COMMANDS
from cachegen.errors import CachegenError

_REFUSED, _INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 2 refused with a reason, 130 interrupted."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(typed, argparse.Namespace(typed=typed))
    try:
        status = COMMANDS[options.command].run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough; what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED
    except (CachegenError, OSError) as error:
        sys.stderr.write(f"cachegen {options.command}: {error}\n")
        return _REFUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cachegen", description="Encode an LLM's KV cache, and see what became of it."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=command.HELP, description=command.DESCRIPTION))
    return parser
