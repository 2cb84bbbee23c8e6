"""``cachegen serve``."""

import argparse
import sys
from pathlib import Path

HELP = "serve a folder of stored contexts over HTTP until SIGTERM"
DESCRIPTION = "Serve a folder of stored contexts over HTTP until SIGTERM; the first line printed says where."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("--root", type=Path, required=True, help="folder of the store")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port; 0, the default, takes a free one")


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.server import serve

    serve(options.root, options.host, options.port, _announce)
    return 0


def _announce(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
