"""The client of a Redis or Valkey server or cluster, by URL; no error shows the URL, since it may hold a password."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from cachegen.errors import InvalidInputError, StoreUnavailableError

Client = redis.Redis | redis.RedisCluster

# A silent server is given up after this time; a part of 8 MiB must be written within it.
TIMEOUT_S = 10.0
# A server that refuses connections or is loading may be restarting: 0.1, 0.2, 0.4, 0.8 and 1 s, less a random share.
_RETRIES = 5
_BACKOFF = ExponentialWithJitterBackoff(base=0.1, cap=1.0)

# the cluster client's own errors are no RedisError
_REFUSALS = (redis.RedisError, RedisClusterException, OSError)
_SCHEMES = {"redis", "rediss", "redis+cluster", "rediss+cluster"}
_DEFAULT_PORT = 6379


@dataclass(frozen=True)
class RedisServer:
    """A client, and how errors call its server."""

    client: Client
    label: str

    @contextmanager
    def refusals_named(self, name: str) -> Iterator[None]:
        """Turn what the client raises into the store's errors, with the server and the object's name."""
        try:
            yield
        except _REFUSALS as error:
            # a retried OSError comes as it is; cluster errors carry a second line
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreUnavailableError(f"{self.label}: {name}: {reason}") from error


def connect(url: str) -> RedisServer:
    """Client for ``redis://[USER:PASSWORD@]HOST[:PORT][/DB]``; ``rediss`` is TLS, ``+cluster`` a cluster.

    The first connection to a single server is made by the first request, that to a cluster here, since the client must
    learn which node holds what.

    Raises
    ------
    InvalidInputError
        Not such a URL.
    StoreUnavailableError
        No node of the cluster answers.
    """
    parts, database = _parse(url)
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    label = f"{parts.scheme}://{host}:{port}/{database}"
    options: dict[str, Any] = {
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "ssl": parts.scheme.startswith("rediss"),
        # what every server speaks; nothing here needs more, and refusals of its handshake say less
        "protocol": 2,
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "socket_read_size": 1 << 16,  # of 64 KiB to 16 MiB the fastest
        "retry": Retry(_BACKOFF, _RETRIES, supported_errors=(redis.ConnectionError, ConnectionError)),
    }
    if not parts.scheme.endswith("+cluster"):
        return RedisServer(redis.Redis(host, port, database, **options), label)
    try:
        return RedisServer(redis.RedisCluster(host, port, **options), label)
    except _REFUSALS as error:
        raise StoreUnavailableError(f"{label}: {str(error).splitlines()[0]}") from error


def _parse(url: str) -> tuple[SplitResult, int]:
    scheme = url.partition("://")[0]
    form = f"a {scheme} URL is {scheme}://[USER:PASSWORD@]HOST[:PORT]"
    form += "" if scheme.endswith("+cluster") else "[/DATABASE]"
    form += ", with any / ? # @ : of user and password percent-encoded (the URL is not shown: it may hold a password)"
    try:
        parts = urlsplit(url)
        _ = parts.port
        path = parts.path.strip("/")
        database = int(path) if path else 0
    except ValueError as error:
        # neither the error's text nor its cause may come along: both quote the URL
        del error
        raise InvalidInputError(form) from None
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.query or parts.fragment or database < 0:
        raise InvalidInputError(form)
    if database and scheme.endswith("+cluster"):
        raise InvalidInputError(f"{form}: a cluster has one database")
    return parts, database
