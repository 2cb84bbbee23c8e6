"""Command line of the library: ``python -m cachegen prepare | serve``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cachegen.errors import CachegenError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 2 refused with a reason."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except CachegenError as error:
        sys.stderr.write(f"cachegen {options.command}: {error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cachegen", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    prepare = commands.add_parser("prepare", help="convert the default model and make its codec profile, once")
    prepare.set_defaults(run=_prepare)
    serve = commands.add_parser("serve", help="serve a folder of stored contexts over HTTP until SIGTERM")
    serve.add_argument("--root", type=Path, required=True, help="folder of the store")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve.add_argument("--port", type=int, default=0, help="port; 0, the default, takes a free one")
    serve.set_defaults(run=_serve)
    return parser


# Both commands import what they need themselves: torch takes seconds, and the server needs none of it.


def _prepare(_options: argparse.Namespace) -> None:
    from cachegen.calibration import cached_profile
    from cachegen.default_model import default_model_path
    from cachegen.model import load_model

    path = default_model_path()
    sys.stdout.write(f"model: {path}\n")
    profile = cached_profile(load_model(path))
    sys.stdout.write(f"profile: {profile.hash.hex()}\n")


def _serve(options: argparse.Namespace) -> None:
    from cachegen.server import serve

    def announce(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    serve(options.root, options.host, options.port, announce)
