"""What a server asks of its clients, and how much it bears of them."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from cachegen.errors import InvalidInputError


@dataclass(frozen=True)
class ServerOptions:
    """Access and limits; the defaults suit one server for a handful of inference hosts.

    Raises
    ------
    InvalidInputError
        A limit that is not positive, or one half of a certificate and its key.
    """

    token: str | None = field(default=None, repr=False)
    """Bearer token to ask for, by all paths but ``/healthz`` and ``/readyz``."""
    tls_cert: Path | None = None
    """Certificate chain (PEM) to serve HTTPS with; needs ``tls_key``."""
    tls_key: Path | None = None
    insecure_no_token: bool = False
    """Listen where other machines reach it though nobody is asked for a token."""
    max_connections: int = 256
    """One more is answered 503, or closed where it would speak TLS first."""
    idle_s: float = 75.0
    """Time for a whole request to arrive, from the connection's begin or from the last answer."""
    stall_s: float = 60.0
    """Time for the client to take each MiB of an answer."""
    request_s: float = 600.0
    """Time for a whole answer."""
    grace_s: float = 5.0
    """Time for answers to end when the server is told to stop."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            is_limit = limit.name.endswith("_s") or limit.name == "max_connections"
            # a day at most: the machine's own timers overflow somewhere
            if is_limit and not 0 < value <= 86400:
                raise InvalidInputError(f"{limit.name} is {value}, must be above 0 and at most 86400")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInputError("a certificate and its key are given together, or neither is")
