"""Publishing a context: chunks first, then tokens, the manifest last, so that what is listed is there."""

from collections.abc import Iterable

from cachegen.chunking import TokenIds, pack_tokens
from cachegen.errors import MismatchError, ObjectNotFoundError
from cachegen.manifest import (
    Manifest,
    check_tokens,
    chunk_name,
    manifest_name,
    pack_manifest,
    tokens_name,
)
from cachegen.stores.base import Store


def publish_context(
    store: Store, manifest: Manifest, token_ids: TokenIds, chunks: Iterable[tuple[bytes, str, bytes]]
) -> int:
    """Put a whole context into the store; return how many bytes had to be written.

    Objects that are there with the same bytes are not written again: contexts with an equal prefix share its
    chunks, and a damaged one is mended. An earlier manifest of the same context is replaced.

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
    sizes_bytes = {
        chunk_name(chunk.key, encoding): size_bytes
        for chunk in manifest.chunks
        for encoding, size_bytes in chunk.encodings.items()
    }
    written_bytes = 0
    for key, encoding, data in chunks:
        name = chunk_name(key, encoding)
        if sizes_bytes.get(name) != len(data):
            raise MismatchError(f"{name}: {len(data)} bytes, the manifest lists {sizes_bytes.get(name)}")
        written_bytes += _put_once(store, name, data)
    for name, size_bytes in sizes_bytes.items():
        if (stored_bytes := _stored_bytes(store, name)) != size_bytes:
            raise MismatchError(f"{name}: {stored_bytes} bytes in the store, the manifest lists {size_bytes}")
    written_bytes += _put_once(store, tokens_name(manifest.context_key), pack_tokens(token_ids))
    packed = pack_manifest(manifest)
    store.put(manifest_name(manifest.context_key), packed)
    return written_bytes + len(packed)


def _put_once(store: Store, name: str, data: bytes) -> int:
    if _stored_bytes(store, name) == len(data) and store.get(name) == data:
        return 0
    store.put(name, data)
    return len(data)


def _stored_bytes(store: Store, name: str) -> int | None:
    try:
        return store.size(name)
    except ObjectNotFoundError:
        return None
