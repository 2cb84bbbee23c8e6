"""Garbage: objects that no manifest lists, left by writers that died or by contexts that were published anew."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from cachegen.errors import InvalidInputError, ObjectNotFoundError
from cachegen.stores.base import Store
from cachegen.stores.claims import sweeping
from cachegen.stores.inventory import Inventory, names_of, take_inventory

# A writer claims anew right before its manifest: by this age at the latest it has published or failed.
SHORTEST_AGE_S = 60.0
# Names of one announcement, which every writer reads: about a mebibyte.
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Collection:
    """What was removed, or would be."""

    removed_objects: int
    removed_bytes: int


def unlisted(inventory: Inventory, older_than_s: float, now_s: float) -> list[str]:
    """Return the names of the objects that no manifest lists, no writer claims, and that were put long enough ago.

    A time in the future, from before the clock was set back, is not long ago.
    """
    listed = inventory.claimed.union(*map(names_of, inventory.manifests.values()))
    objects = inventory.objects.values()
    return [each.name for each in objects if each.name not in listed and now_s - each.modified_s >= older_than_s]


def collect_garbage(store: Store, older_than_s: float, *, dry_run: bool = False) -> Collection:
    """Remove what no manifest lists; safe beside readers, writers and other sweeps.

    Parameters
    ----------
    older_than_s
        Age by the store's own clock. A writer that takes longer for a context's chunks may find some gone, and fails.

    Raises
    ------
    InvalidInputError
        An age under ``SHORTEST_AGE_S``.
    VersionError
        A manifest of another release.
    StoreUnavailableError
        The store does not answer, or this process was suspended in the middle.
    """
    if older_than_s < SHORTEST_AGE_S:
        raise InvalidInputError(f"an age of {older_than_s:g} s could be a writer's work; at least {SHORTEST_AGE_S:g} s")
    with sweeping(store) as sweep:
        now_s = sweep.now_s()
        inventory = take_inventory(store, now_s, older_than_s, sweep.keep)
        found = unlisted(inventory, older_than_s, now_s)
        if dry_run:
            return _collection(inventory, found)
        removed: list[str] = []
        for first in range(0, len(found), _AT_ONCE):
            some = found[first : first + _AT_ONCE]
            sweep.announce(some)
            # whoever has claimed or published something since it was found is heard now
            again = take_inventory(store, now_s, older_than_s, sweep.keep)
            for name in sorted(set(some).intersection(unlisted(again, older_than_s, now_s))):
                sweep.keep()
                with suppress(ObjectNotFoundError):
                    store.delete(name)
                    removed.append(name)
    return _collection(inventory, removed)


def _collection(inventory: Inventory, names: Iterable[str]) -> Collection:
    sizes = [inventory.size_bytes(name) for name in names]
    return Collection(len(sizes), sum(sizes))
