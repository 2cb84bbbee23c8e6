"""``cachegen serve``."""

import argparse
import sys
from pathlib import Path

from cachegen.server.options import ServerOptions

HELP = "serve a folder of stored contexts over HTTP until SIGTERM"
DESCRIPTION = (
    "Serve a folder of stored contexts over HTTP until SIGTERM; the first line printed says where. An address that "
    "other machines reach is refused unless clients must show a token, which is read from --token-file or from the "
    "environment variable CACHEGEN_TOKEN, or unless --insecure-no-token is given."
)

# One flag for each limit of ``ServerOptions``, and what it says.
_LIMITS = {
    "max_connections": "connections at once; one more is refused at once",
    "idle_s": "seconds for a whole request to arrive",
    "stall_s": "seconds for a client to take each MiB",
    "request_s": "seconds for a whole answer",
    "grace_s": "seconds for answers to end after SIGTERM",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("--root", type=Path, required=True, help="folder of the store")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port; 0, the default, takes a free one")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="bearer token that clients must show")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain (PEM), for HTTPS")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="key of --tls-cert (PEM, without a password)")
    parser.add_argument(
        "--insecure-no-token", action="store_true", help="listen beyond loopback without asking for a token"
    )
    for name, text in _LIMITS.items():
        default = getattr(ServerOptions, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            metavar="N" if name == "max_connections" else "S",
            help=f"{text} (default: %(default)g)",
        )


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.bearer_token import token_from_environment, token_from_file
    from cachegen.server.run import serve

    token = token_from_environment() if options.token_file is None else token_from_file(options.token_file)
    server_options = ServerOptions(
        token=token,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        insecure_no_token=options.insecure_no_token,
        **{name: getattr(options, name) for name in _LIMITS},
    )
    serve(options.root, options.host, options.port, _announce, server_options)
    return 0


def _announce(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
