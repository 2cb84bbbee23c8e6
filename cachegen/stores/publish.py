"""Publishing a context: chunks first, then tokens, the manifest last, so that what is listed is there."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cachegen.chunking import TokenIds, pack_tokens
from cachegen.errors import FormatError, MismatchError, ObjectNotFoundError
from cachegen.manifest import (
    Manifest,
    check_tokens,
    chunk_name,
    manifest_name,
    pack_manifest,
    tokens_name,
    used_name,
)
from cachegen.stores.base import Store
from cachegen.stores.claims import claimed
from cachegen.stores.inventory import chunk_sizes


@dataclass(frozen=True)
class Published:
    """The manifest as it stands in the store now, and how many bytes had to be written."""

    manifest: Manifest
    written_bytes: int


def publish_context(
    store: Store, manifest: Manifest, token_ids: TokenIds, chunks: Iterable[tuple[bytes, str, bytes]]
) -> Published:
    """Put a whole context into the store.

    Objects that are there are not written again: contexts with an equal prefix share its chunks, and a damaged one is
    mended. Of two writers that put a chunk at once, one is the first, and the manifests of both list what that one put,
    whose size may differ. An earlier manifest of the same context is replaced.

    Parameters
    ----------
    chunks
        For each object that the manifest lists: the chunk's key, the encoding's name, the bytes. A generator
        keeps no more than one object in memory. Objects that are in the store already may be left out.

    Raises
    ------
    MismatchError
        The tokens are not the manifest's, a chunk's object is not in the manifest or not of the size listed
        there, or one that is listed was neither given nor in the store. No manifest is published then.
    StoreUnavailableError
        The store does not take the objects.
    """
    check_tokens(manifest, token_ids)
    sizes_bytes = chunk_sizes(manifest)
    written_bytes = 0
    with claimed(store, manifest) as claim:
        for key, encoding, data in chunks:
            name = chunk_name(key, encoding)
            if sizes_bytes.get(name) != len(data):
                raise MismatchError(f"{name}: {len(data)} bytes, the manifest lists {sizes_bytes.get(name)}")
            stored, written = _put_once(store, name, data)
            if len(stored) != len(data):
                manifest = _with_size(manifest, key, encoding, len(stored))
            written_bytes += written
        claim.renew()  # the chunks may have taken longer than a claim lasts
        for name, size_bytes in chunk_sizes(manifest).items():
            if (stored_bytes := _stored_bytes(store, name)) != size_bytes:
                raise MismatchError(f"{name}: {stored_bytes} bytes in the store, the manifest lists {size_bytes}")
        tokens, packed = pack_tokens(token_ids), pack_manifest(manifest)
        written_bytes += _put_if_other(store, tokens_name(manifest.context_key), tokens)
        record_use(store, manifest.context_key)
        store.put(manifest_name(manifest.context_key), packed)
    return Published(manifest, written_bytes + len(packed))


def record_use(store: Store, context_key: bytes) -> None:
    """Record that a context is being used now: eviction spares what was used last.

    The record is the time that the store gives to an empty object, so clocks of readers play no part.
    """
    store.touch(used_name(context_key))


def _put_once(store: Store, name: str, data: bytes) -> tuple[bytes, int]:
    """Bytes that are stored under a chunk's name from now on, and how many of them were written."""
    if store.put_new(name, data):
        return data, len(data)
    try:
        stored = store.get(name)
    except ObjectNotFoundError:
        stored = b""
    if stored == data or _is_the_same_chunk(stored, data):
        return stored, 0
    store.put(name, data)
    return data, len(data)


def _is_the_same_chunk(stored: bytes, data: bytes) -> bool:
    """Whether two containers, both sound, hold one chunk in one encoding; their bytes may differ all the same."""
    # loads torch, which those who only read from stores do without
    from cachegen.container import unpack

    try:
        first, second = unpack(stored), unpack(data)
    except FormatError:
        return False
    return (first.encoding, first.identity, first.layout) == (second.encoding, second.identity, second.layout)


def _put_if_other(store: Store, name: str, data: bytes) -> int:
    try:
        if store.get(name, 0, len(data) + 1) == data:
            return 0
    except ObjectNotFoundError:
        pass
    store.put(name, data)
    return len(data)


def _with_size(manifest: Manifest, key: bytes, encoding: str, size_bytes: int) -> Manifest:
    chunks = tuple(
        replace(chunk, encodings={**chunk.encodings, encoding: size_bytes}) if chunk.key == key else chunk
        for chunk in manifest.chunks
    )
    return replace(manifest, chunks=chunks)


def _stored_bytes(store: Store, name: str) -> int | None:
    try:
        return store.size(name)
    except ObjectNotFoundError:
        return None
