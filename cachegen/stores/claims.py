"""How writers and sweeps (eviction, collection) share a store that knows neither locks nor transactions.

A writer puts a claim, ``claims/TOKEN``: the manifest that it is about to publish. A sweep puts ``sweep``: the names
that it is about to remove or rewrite. Both do so *before* they look for the other's, so one of them at least sees the
other:

- a sweep leaves alone what a claim lists;
- a writer that wants what the sweep names waits until the sweep is over.

There is one sweep at a time: ``sweep`` is put only where there is none. It is renewed while its owner lives. Whoever
finds it unchanged for ``LEASE_S``, by a clock of its own that nobody sets, takes its owner for dead: no clock of two
machines is compared. What remains is a sweep that is suspended for most of a lease between its last look at the clock
and a removal, and then goes on: a reader may then miss an object that is listed, and recomputes its chunk.
"""

import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from cachegen.errors import ObjectNotFoundError, StoreError, StoreUnavailableError
from cachegen.manifest import Manifest, pack_manifest
from cachegen.stores.base import Store
from cachegen.stores.inventory import CLAIMS, names_of

SWEEP = "sweep"
LEASE_S = 120.0
_POLL_S = 0.1


class Claim:
    """A writer's claim on what its manifest lists."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store, self._names, self._packed = store, names_of(manifest), pack_manifest(manifest)
        self._name = f"{CLAIMS}{secrets.token_hex(16)}"

    def renew(self) -> None:
        """Claim from now on, and wait for the sweep that was there before, if it is about the same objects."""
        self._store.put(self._name, self._packed)
        if (seen := _read_sweep(self._store)) and not self._names.isdisjoint(_names_in(seen)):
            _await_end(self._store, seen)

    def release(self) -> None:
        """Claim no longer."""
        with suppress(StoreError):  # a claim that stays ends by its age; what matters has been done or has failed
            self._store.delete(self._name)


@contextmanager
def claimed(store: Store, manifest: Manifest) -> Iterator[Claim]:
    """Claim what a manifest lists while the block puts it."""
    claim = Claim(store, manifest)
    try:
        claim.renew()
        yield claim
    finally:
        claim.release()


class Sweep:
    """The one sweep of a store."""

    def __init__(self, store: Store) -> None:
        self._store, self._names, self._token = store, list[str](), secrets.token_hex(16)
        self._round, self._renewed_s = 0, 0.0

    def start(self) -> None:
        """Wait for the sweep that is there, then take its place, for now without a name."""
        while not self._store.put_new(SWEEP, self._content()):
            if seen := _read_sweep(self._store):
                _await_end(self._store, seen)
                if _read_sweep(self._store) == seen:  # its owner is dead
                    self._remove()
        self._renewed_s = time.monotonic()

    def keep(self) -> None:
        """To be called before each change.

        Raises
        ------
        StoreUnavailableError
            This process was suspended for so long that others take it for dead.
        """
        silent_s = time.monotonic() - self._renewed_s
        if silent_s > LEASE_S / 2:
            raise StoreUnavailableError(f"a sweep was held up for {silent_s:.0f} s, too long to go on; begin again")
        if silent_s > LEASE_S / 4:
            self.announce(self._names)

    def announce(self, names: Collection[str]) -> None:
        """Say which names this sweep is about to remove or rewrite; only claims read after this have been heard.

        Raises
        ------
        StoreUnavailableError
            Others took this sweep for dead and went on.
        """
        if _read_sweep(self._store) != self._content():
            raise StoreUnavailableError("a sweep was taken for dead by another one; begin again")
        self._names, self._round = sorted(names), self._round + 1
        self._store.put(SWEEP, self._content())
        self._renewed_s = time.monotonic()

    def end(self) -> None:
        """Let others go on."""
        with suppress(StoreError):  # else they find out by the lease
            if _read_sweep(self._store) == self._content():
                self._remove()

    def now_s(self) -> float:
        """The store's time, as of this sweep's last sign of life."""
        return max((entry.modified_s for entry in self._store.entries(SWEEP) if entry.name == SWEEP), default=0.0)

    def _content(self) -> bytes:
        return "\n".join([f"{self._token} {self._round}", *self._names]).encode()

    def _remove(self) -> None:
        with suppress(ObjectNotFoundError):
            self._store.delete(SWEEP)


@contextmanager
def sweeping(store: Store) -> Iterator[Sweep]:
    """Be the one who may remove and rewrite objects while the block lasts."""
    sweep = Sweep(store)
    sweep.start()
    try:
        yield sweep
    finally:
        sweep.end()


def _names_in(sweep: bytes) -> list[str]:
    return sweep.decode(errors="replace").split("\n")[1:]


def _read_sweep(store: Store) -> bytes:
    try:
        return store.get(SWEEP)
    except ObjectNotFoundError:
        return b""


def _await_end(store: Store, seen: bytes) -> None:
    """Wait until the sweep has ended or shows no sign of life."""
    since_s = time.monotonic()
    token = seen.split(b" ")[0]
    while time.monotonic() - since_s < LEASE_S:
        time.sleep(_POLL_S)
        found = _read_sweep(store)
        if found.split(b" ")[0] != token:
            return
        if found != seen:
            seen, since_s = found, time.monotonic()
