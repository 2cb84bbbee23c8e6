"""Command line of the traces: ``python -m testbed.traces COMMAND``."""

import argparse
import os
import sys
from collections.abc import Sequence

from cachegen import CachegenError
from testbed.traces.commands import COMMANDS

_REFUSED, _INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 2 refused with a reason, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="testbed.traces", description="See, import and make traces of links.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=command.HELP, description=command.DESCRIPTION))
    options = parser.parse_args(arguments)
    try:
        COMMANDS[options.command].run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough; what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED
    except (CachegenError, OSError) as error:
        sys.stderr.write(f"testbed.traces {options.command}: {error}\n")
        return _REFUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
