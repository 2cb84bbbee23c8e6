"""Where a server may listen, and what it proves itself with."""

import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Any

from cachegen.errors import InvalidInputError, StoreUnavailableError
from cachegen.input_file import read_bytes
from cachegen.server.options import ServerOptions

_BACKLOG = 128
# A chain of a hundred certificates has a tenth of it.
_MAX_PEM_BYTES = 1 << 20


def listen(host: str, port: int, options: ServerOptions) -> socket.socket:
    """Return a socket that listens on the first address of ``host``.

    Raises
    ------
    InvalidInputError
        No such port, or other machines reach the address and nobody would be asked for a token.
    StoreUnavailableError
        The address cannot be listened on.
    """
    if not 0 <= port < 1 << 16:
        raise InvalidInputError(f"port is {port}, must be in 0..65535")
    listener = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        _check_exposure(str(address[0]), options)
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # what is left to send to a client that takes nothing, or that is gone, does not keep its connection; those
        # that are accepted inherit this
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(options.stall_s * 1e3))
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreUnavailableError(f"{host}:{port}: {reason}") from error
    listener.setblocking(False)
    return listener


def _check_exposure(address: str, options: ServerOptions) -> None:
    if options.token is None and not options.insecure_no_token and not is_loopback(address):
        raise InvalidInputError(
            f"{address}: other machines reach this address, and nobody would be asked for a token: name one by "
            "--token-file or CACHEGEN_TOKEN, or allow everyone by --insecure-no-token"
        )


def is_loopback(address: str) -> bool:
    """Whether an IP address is this machine's own alone."""
    # an IPv6 address may name its interface
    ip: Any = ipaddress.ip_address(address.partition("%")[0])
    return bool((getattr(ip, "ipv4_mapped", None) or ip).is_loopback)


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """Load a certificate chain and its key, both PEM; InvalidInputError, with the file, if they are none."""
    for path in (cert, key):
        if b"-----BEGIN " not in read_bytes(path, _MAX_PEM_BYTES):
            raise InvalidInputError(f"{path}: not a PEM file")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def refuse() -> str:
        raise InvalidInputError(f"{key}: the key asks for a password, which a server has nobody to ask for")

    try:
        context.load_cert_chain(cert, key, password=refuse)
    except ssl.SSLError as error:
        raise InvalidInputError(f"{cert} and {key}: not a certificate and its key: {error.reason}") from error
    return context
