"""Eviction: what to drop from a store that is over its quota, and dropping it.

An object is as warm as the most recently used context that lists it. All but the coarsest encoding of each chunk go
first, those of the coldest context before those of the next, the finest first: the one of the most bytes, which means
the same for every codec. The coarsest follow, again from the coldest; within a context from its first chunk on, whose
recompute is the cheapest. A context that has no encoding left goes whole.

Manifests are rewritten before objects are deleted. Who has read the old one finds an object missing, and recomputes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cachegen.errors import InvalidInputError, ObjectNotFoundError
from cachegen.manifest import Manifest, chunk_name, manifest_name, pack_manifest
from cachegen.stores.base import Store
from cachegen.stores.claims import Sweep, sweeping
from cachegen.stores.inventory import CLAIM_S, Inventory, chunk_sizes, index_names, take_inventory

# Names of one announcement, which every writer reads: about a mebibyte.
_AT_ONCE = 10_000


@dataclass(frozen=True)
class EvictionPlan:
    """What to drop.

    Parameters
    ----------
    dropped
        Names of chunks' objects, the first to go first.
    rewritten
        The manifests that still list something, as they will be, by context key.
    removed
        Keys of the contexts that lose everything.
    freed_bytes
        Of chunks, and of the removed contexts' manifests and tokens.
    """

    dropped: tuple[str, ...]
    rewritten: Mapping[bytes, Manifest]
    removed: tuple[bytes, ...]
    freed_bytes: int

    @property
    def touched(self) -> frozenset[str]:
        """Names of all objects that are dropped, or belong to the index of a context that changes."""
        contexts = [*self.rewritten, *self.removed]
        return frozenset(self.dropped).union(*(index_names(key) for key in contexts))


@dataclass(frozen=True)
class Eviction:
    """What was done, or would be.

    Parameters
    ----------
    dropped_objects
        Chunks' objects.
    changed_contexts, removed_contexts
        Contexts that list less than before, and those that are gone.
    before_bytes, after_bytes
        In the store, whether listed or not.
    """

    dropped_objects: int
    changed_contexts: int
    removed_contexts: int
    before_bytes: int
    after_bytes: int


def plan_eviction(
    inventory: Inventory, quota_bytes: int, now_s: float, only: frozenset[str] | None = None
) -> EvictionPlan:
    """Choose what to drop until the store holds ``quota_bytes`` or less, or nothing is left that may go.

    Parameters
    ----------
    inventory
        What is there. Nothing that is claimed is touched.
    now_s
        By the store's clock.
    only
        The names that may be dropped or rewritten; default: all.
    """
    listed_by: dict[str, list[bytes]] = defaultdict(list)
    left: dict[bytes, int] = {}
    for context_key, manifest in inventory.manifests.items():
        names = chunk_sizes(manifest)
        left[context_key] = len(names)
        for name in names:
            listed_by[name].append(context_key)
    dropped: dict[str, None] = {}
    freed_bytes, excess_bytes = 0, inventory.num_bytes - quota_bytes
    for name in _in_order(inventory, now_s):
        if freed_bytes >= excess_bytes or len(dropped) == _AT_ONCE:
            break
        touched = {name, *(manifest_name(key) for key in listed_by[name])}
        if touched & inventory.claimed or (only is not None and not touched <= only):
            continue
        dropped[name] = None
        freed_bytes += inventory.size_bytes(name)
        for context_key in listed_by[name]:
            left[context_key] -= 1
            if not left[context_key]:
                freed_bytes += sum(map(inventory.size_bytes, index_names(context_key)))
    changed = {key for name in dropped for key in listed_by[name]}
    rewritten = {key: _without(inventory.manifests[key], dropped) for key in sorted(changed) if left[key]}
    return EvictionPlan(tuple(dropped), rewritten, tuple(sorted(changed - rewritten.keys())), freed_bytes)


def _in_order(inventory: Inventory, now_s: float) -> list[str]:
    """Names of all chunks' objects, the first to go first."""
    places: dict[str, tuple[bool, float, bytes, int, int]] = {}
    used_s = {key: inventory.last_used_s(key, now_s) for key in inventory.manifests}
    # from the coldest context to the warmest: what several list stands where the warmest of them puts it
    for context_key in sorted(inventory.manifests, key=lambda key: (used_s[key], key)):
        for index, ranked in enumerate(_finest_first(inventory.manifests[context_key])):
            for rank, name in enumerate(ranked):
                places[name] = (rank == len(ranked) - 1, used_s[context_key], context_key, rank, index)
    return sorted(places, key=places.__getitem__)


def _finest_first(manifest: Manifest) -> Iterator[list[str]]:
    """Names of each chunk's objects, by size."""
    for chunk in manifest.chunks:
        ranked = sorted(chunk.encodings, key=lambda encoding: (-chunk.encodings[encoding], encoding))
        yield [chunk_name(chunk.key, encoding) for encoding in ranked]


def _without(manifest: Manifest, dropped: Mapping[str, None]) -> Manifest:
    chunks = tuple(
        replace(
            chunk,
            encodings={
                encoding: size_bytes
                for encoding, size_bytes in chunk.encodings.items()
                if chunk_name(chunk.key, encoding) not in dropped
            },
        )
        for chunk in manifest.chunks
    )
    return replace(manifest, chunks=chunks)


def evict(store: Store, quota_bytes: int, *, dry_run: bool = False) -> Eviction:
    """Drop what :func:`plan_eviction` chooses; safe beside readers, writers and other sweeps.

    Objects that no manifest lists count, but are left to ``collect_garbage``: they may be a writer's.

    Raises
    ------
    InvalidInputError
        A negative quota.
    VersionError
        A manifest of another release.
    StoreUnavailableError
        The store does not answer, or this process was suspended in the middle; what is listed is there all the same.
    """
    if quota_bytes < 0:
        raise InvalidInputError(f"a quota of {quota_bytes} bytes is none")
    with sweeping(store) as sweep:
        now_s = sweep.now_s()
        inventory = take_inventory(store, now_s, CLAIM_S, sweep.keep)
        before_bytes = inventory.num_bytes
        plan = plan_eviction(inventory, quota_bytes, now_s)
        if dry_run:
            return _eviction([plan], before_bytes, before_bytes - plan.freed_bytes)
        done = []
        while plan.dropped:
            sweep.announce(plan.touched)
            # whoever has claimed or published something since the plan was made is heard now
            inventory = take_inventory(store, now_s, CLAIM_S, sweep.keep)
            plan = plan_eviction(inventory, quota_bytes, now_s, plan.touched)
            _carry_out(store, sweep, plan)
            done.append(plan)
            inventory = take_inventory(store, now_s, CLAIM_S, sweep.keep)
            plan = plan_eviction(inventory, quota_bytes, now_s)
    return _eviction(done, before_bytes, inventory.num_bytes)


def _eviction(plans: Sequence[EvictionPlan], before_bytes: int, after_bytes: int) -> Eviction:
    removed = {key for plan in plans for key in plan.removed}
    changed = {key for plan in plans for key in plan.rewritten} - removed
    return Eviction(sum(len(plan.dropped) for plan in plans), len(changed), len(removed), before_bytes, after_bytes)


def _carry_out(store: Store, sweep: Sweep, plan: EvictionPlan) -> None:
    for context_key, manifest in plan.rewritten.items():
        sweep.keep()
        store.put(manifest_name(context_key), pack_manifest(manifest))
    for name in [*(name for key in plan.removed for name in index_names(key)), *plan.dropped]:
        sweep.keep()
        with suppress(ObjectNotFoundError):
            store.delete(name)
