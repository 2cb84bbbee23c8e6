"""What a store holds: its objects, the contexts that list them, and what writers have claimed."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cachegen.errors import FormatError, ObjectNotFoundError, VersionError
from cachegen.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    chunk_name,
    manifest_name,
    tokens_name,
    unpack_manifest,
    used_name,
)
from cachegen.stores.base import Store, StoredObject

CLAIMS, MANIFESTS = "claims/", "manifests/"
# Everything that publishing makes; other objects of a store are nobody's business here.
OWN_PREFIXES = ("chunks/", CLAIMS, MANIFESTS, "tokens/", "used/")
# How long a writer may take for a context's chunks; it claims again before it looks whether all of them are there.
CLAIM_S = 3600.0
# Manifests are small: the store's round trips, not its bandwidth, are what reading thousands of them takes.
_READERS = 16


@dataclass(frozen=True)
class Inventory:
    """What was in a store at one time.

    Parameters
    ----------
    objects
        All that publishing makes, by name.
    manifests
        Of the contexts that can be read, by context key.
    claimed
        Names that writers are about to list.
    """

    objects: Mapping[str, StoredObject]
    manifests: Mapping[bytes, Manifest]
    claimed: frozenset[str]

    @property
    def num_bytes(self) -> int:
        """Bytes of all objects."""
        return sum(entry.size_bytes for entry in self.objects.values())

    def size_bytes(self, name: str) -> int:
        """Size of an object; 0 if it is not there."""
        return self.objects[name].size_bytes if name in self.objects else 0

    def last_used_s(self, context_key: bytes, now_s: float) -> float:
        """When a context was last used, by the store's clock; 0 for one of which no use is recorded.

        A time in the future, from before the clock was set back, counts as now.
        """
        entry = self.objects.get(used_name(context_key))
        return 0.0 if entry is None else min(entry.modified_s, now_s)


def chunk_sizes(manifest: Manifest) -> dict[str, int]:
    """Return the size in bytes of each chunk's object that a manifest lists, by name."""
    return {
        chunk_name(chunk.key, encoding): size_bytes
        for chunk in manifest.chunks
        for encoding, size_bytes in chunk.encodings.items()
    }


def index_names(context_key: bytes) -> tuple[str, str, str]:
    """Return the names of a context's objects that are not chunks; the manifest comes first."""
    return manifest_name(context_key), tokens_name(context_key), used_name(context_key)


def names_of(manifest: Manifest) -> set[str]:
    """Return the names of all objects that a context has."""
    return {*chunk_sizes(manifest), *index_names(manifest.context_key)}


def take_inventory(store: Store, now_s: float, claim_s: float, keep: Callable[[], None]) -> Inventory:
    """Read a store's listings, claims and manifests.

    Parameters
    ----------
    now_s
        By the store's clock.
    claim_s
        An older claim is a dead writer's.
    keep
        Called now and then, as reading may take minutes.

    Raises
    ------
    VersionError
        A manifest of another release: what it lists is not known, so nothing can be called unlisted. (One that is
        damaged can be read by nobody, and lists nothing.)
    StoreUnavailableError
        The store does not answer.
    """
    objects = {entry.name: entry for prefix in OWN_PREFIXES for entry in store.entries(prefix)}
    # Claims come before manifests, as a writer's manifest comes before the end of its claim: one of them is seen.
    live = (entry.name for entry in store.entries(CLAIMS) if now_s - entry.modified_s < claim_s)
    claims = _read_manifests(store, live, keep)
    # where a writer is at it, its context's manifest must stay as it is too
    pinned = {claim.context_key for claim in claims.values()}
    manifests = {
        manifest.context_key: manifest
        for name, manifest in _read_manifests(store, store.names(MANIFESTS), keep).items()
        if name == manifest_name(manifest.context_key)
    }
    kept = [*claims.values(), *(manifests[key] for key in pinned & manifests.keys())]
    return Inventory(objects, manifests, frozenset[str]().union(*map(names_of, kept)))


def _read_manifests(store: Store, names: Iterable[str], keep: Callable[[], None]) -> dict[str, Manifest]:
    found = {}
    with ThreadPoolExecutor(_READERS) as pool:
        for name, manifest in pool.map(lambda name: (name, _read_manifest(store, name)), names):
            keep()
            if manifest is not None:
                found[name] = manifest
    return found


def _read_manifest(store: Store, name: str) -> Manifest | None:
    try:
        return unpack_manifest(store.get(name, 0, MAX_MANIFEST_BYTES + 1))
    except VersionError as error:
        raise VersionError(f"{name}: {error}") from error
    except (FormatError, ObjectNotFoundError):
        return None
