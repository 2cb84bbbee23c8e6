"""A store in a bucket of S3, or of what speaks its protocol; obstore does requests, retries and multipart uploads."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store as Bucket

from cachegen.errors import InvalidInputError, ObjectNotFoundError, StoreUnavailableError
from cachegen.stores.base import StoredObject, check_name, check_range, is_name

# Silence of a server, not the length of a transfer, ends it; the whole of a request is bounded all the same.
_SILENCE, _WHOLE_REQUEST = timedelta(seconds=10), timedelta(minutes=10)
_MAX_RETRIES, _RETRIES_WITHIN = 3, timedelta(seconds=20)
_PARAMETERS = {"region", "endpoint"}
# Offsets are 64 bits wide to the client; no object of S3 has more than 2**43 bytes.
_LARGEST_OFFSET = 2**62
# Of an object that is read as it comes: small, since they cost no round trips.
_PIECE_BYTES = 1 << 14
# A service may answer with a page.
_LONGEST_REASON = 600


class S3Store:
    """Objects below ``prefix`` of a bucket; credentials come from the environment, as for any client of S3.

    Raises
    ------
    InvalidInputError
        What the client cannot be made with.
    """

    def __init__(self, bucket: str, prefix: str = "", region: str | None = None, endpoint: str | None = None) -> None:
        self._label = f"s3://{bucket}/{prefix}".rstrip("/")
        options = {"region": region, "endpoint": endpoint}
        try:
            self._bucket = Bucket(
                bucket,
                prefix=prefix or None,
                client_options={
                    "allow_http": endpoint is not None and endpoint.startswith("http://"),
                    "connect_timeout": _SILENCE,
                    "read_timeout": _SILENCE,
                    "timeout": _WHOLE_REQUEST,
                },
                retry_config={"max_retries": _MAX_RETRIES, "retry_timeout": _RETRIES_WITHIN},
                **{key: value for key, value in options.items() if value is not None},  # type: ignore[arg-type]  # two keys of its TypedDict
            )
        except BaseError as error:
            raise InvalidInputError(f"{self._label}: {_reason(error)}") from error

    def put(self, name: str, data: bytes) -> None:
        """See ``Store.put``; when it returns, the object is as durable as the bucket."""
        check_name(name)
        with self._refusals_named(name):
            obstore.put(self._bucket, name, data)

    def put_new(self, name: str, data: bytes) -> bool:
        """See ``Store.put_new``; one request with ``If-None-Match``, of 5 GiB at most."""
        check_name(name)
        with self._refusals_named(name):
            try:
                obstore.put(self._bucket, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def touch(self, name: str) -> None:
        """See ``Store.touch``."""
        self.put(name, b"")

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See ``Store.get``; a range in one request, unless it lies behind the end."""
        check_name(name)
        check_range(start, end)
        stop = _LARGEST_OFFSET if end is None else min(end, _LARGEST_OFFSET)
        if start >= stop:
            self.size(name)  # an empty range is no request to S3, but the object must be there
            return b""
        with self._refusals_named(name):
            if start == 0 and end is None:
                return bytes(obstore.get(self._bucket, name).bytes())
            try:
                return bytes(obstore.get(self._bucket, name, options={"range": (start, stop)}).bytes())
            except BaseError:
                # S3 refuses a range behind the end, where a slice is empty
                if start >= self.size(name):
                    return b""
                raise

    def read(self, name: str, end: int) -> Generator[bytes, None, None]:
        """See ``Store.read``; one request, whose answer is read as it comes."""
        check_name(name)
        check_range(0, end)
        if not end:
            self.size(name)  # no request to S3, but the object must be there
            return
        with self._refusals_named(name):
            try:
                answer = obstore.get(self._bucket, name, options={"range": (0, min(end, _LARGEST_OFFSET))})
            except BaseError:
                # S3 refuses every range of an object of no bytes
                if not self.size(name):
                    return
                raise
            for piece in answer.stream(min_chunk_size=_PIECE_BYTES):
                yield bytes(piece)

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        check_name(name)
        with self._refusals_named(name):
            return int(obstore.head(self._bucket, name)["size"])

    def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        return [entry.name for entry in self.entries(prefix)]

    def entries(self, prefix: str = "") -> list[StoredObject]:
        """See ``Store.entries``; the clock is the bucket's, often in whole seconds."""
        # the client lists what lies below a whole segment
        folder, _, _ = prefix.rpartition("/")
        if folder and not is_name(folder):
            return []
        with self._refusals_named(f"{prefix}*"):
            found = [
                StoredObject(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for page in obstore.list(self._bucket, folder or None)
                for meta in page
            ]
        listed = (entry for entry in found if entry.name.startswith(prefix) and is_name(entry.name))
        return sorted(listed, key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        """See ``Store.delete``; of two that delete at once, both may succeed."""
        self.size(name)  # S3 deletes what is not there without a word
        with self._refusals_named(name):
            obstore.delete(self._bucket, name)

    @contextmanager
    def _refusals_named(self, name: str) -> Iterator[None]:
        """Turn what the client raises into the store's errors, with bucket and object."""
        try:
            yield
        except FileNotFoundError as error:
            # S3 says of a bucket that is not there what it says of an object
            try:
                next(iter(obstore.list(self._bucket, chunk_size=1)), None)
            except (BaseError, OSError) as refusal:
                raise StoreUnavailableError(f"{self._label}: {_reason(refusal)}") from refusal
            raise ObjectNotFoundError(f"{self._label}/{name}: no such object") from error
        except (BaseError, OSError) as error:
            raise StoreUnavailableError(f"{self._label}/{name}: {_reason(error)}") from error


def open_s3(url: str) -> S3Store:
    """Store at ``s3://BUCKET[/PREFIX][?region=REGION][&endpoint=URL]``.

    Raises
    ------
    InvalidInputError
        Not such a URL.
    """
    form = "an S3 store is s3://BUCKET[/PREFIX][?region=REGION&endpoint=URL], its credentials come from the environment"
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InvalidInputError(f"{form} (the URL is not shown: it may hold a password)")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = unquote(parts.path).strip("/")
    unknown = sorted(parameters.keys() - _PARAMETERS)
    if not parts.netloc or parts.fragment or unknown or (prefix and not is_name(prefix)):
        raise InvalidInputError(f"{url}: {form}")
    endpoint = parameters.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise InvalidInputError(f"{url}: endpoint {endpoint!r} is no http:// or https:// URL")
    return S3Store(parts.netloc, prefix, parameters.get("region"), endpoint)


def _reason(error: Exception) -> str:
    """The client's text on one line, up to where it prints its memory."""
    text = " ".join(str(error).partition("\n\nDebug source:")[0].split())
    return text[:_LONGEST_REASON] or type(error).__name__
