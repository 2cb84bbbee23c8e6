"""Eviction and collection: which objects go, and that no manifest ever lists what is not there."""

import re
import threading
import time

import pytest
from storage_server import REPOSITORY
from store_contexts import check_store, make_context, publish

from cachegen.chunking import pack_tokens
from cachegen.cli import main
from cachegen.errors import InvalidInputError, MismatchError, StoreUnavailableError, VersionError
from cachegen.manifest import chunk_name, manifest_name, pack_manifest, tokens_name, unpack_manifest, used_name
from cachegen.stores import StoredObject, claims, garbage, open_store, publish_context, record_use
from cachegen.stores.claims import SWEEP, Claim, Sweep, sweeping
from cachegen.stores.eviction import evict, plan_eviction
from cachegen.stores.garbage import collect_garbage, unlisted
from cachegen.stores.inventory import Inventory, names_of
from cachegen.stores.memory_store import MemoryStore

NOW_S = 1000.0


def inventory_of(used_s, claimed_names=frozenset(), extra=()):
    """Contexts by their first token, last used at these times; all objects put at time 0."""
    objects, manifests = {}, {}
    for first, at_s in used_s.items():
        token_ids, manifest, listed = make_context(first)
        manifests[manifest.context_key] = manifest
        sizes = {chunk_name(key, encoding): len(data) for key, encoding, data in listed}
        sizes[tokens_name(manifest.context_key)] = len(pack_tokens(token_ids))
        sizes[manifest_name(manifest.context_key)] = len(pack_manifest(manifest))
        objects |= {name: StoredObject(name, size_bytes, 0.0) for name, size_bytes in sizes.items()}
        if at_s is not None:
            objects[used_name(manifest.context_key)] = StoredObject(used_name(manifest.context_key), 0, at_s)
    objects |= {entry.name: entry for entry in extra}
    return Inventory(objects, manifests, frozenset(claimed_names))


def named(first, index, level):
    """Name of a context's chunk in one level."""
    return chunk_name(make_context(first)[1].chunks[index].key, f"cachegen-{level}")


# The plan.


def test_finest_levels_of_the_coldest_contexts_go_first_and_last_levels_last():
    inventory = inventory_of({100: 10.0, 200: 20.0})

    order = plan_eviction(inventory, 0, NOW_S).dropped

    assert list(order) == [
        *(named(100, index, 0) for index in (1, 2)),
        *(named(100, index, 1) for index in (1, 2)),
        # the first chunk is both contexts', and as warm as the warmer one
        *(named(200, index, 0) for index in (0, 1, 2)),
        *(named(200, index, 1) for index in (0, 1, 2)),
        *(named(100, index, 2) for index in (1, 2)),
        *(named(200, index, 2) for index in (0, 1, 2)),
    ]


def test_no_more_is_dropped_than_the_quota_asks_for():
    inventory = inventory_of({100: 10.0, 200: 20.0})

    assert plan_eviction(inventory, inventory.num_bytes, NOW_S).dropped == ()
    plan = plan_eviction(inventory, inventory.num_bytes - 9001, NOW_S)

    assert plan.dropped == (named(100, 1, 0), named(100, 2, 0))
    assert (plan.freed_bytes, plan.removed) == (18000, ())
    [(context_key, rewritten)] = plan.rewritten.items()
    assert context_key == make_context(100)[1].context_key
    assert [sorted(chunk.encodings) for chunk in rewritten.chunks] == [
        ["cachegen-0", "cachegen-1", "cachegen-2"],
        ["cachegen-1", "cachegen-2"],
        ["cachegen-1", "cachegen-2"],
    ]


def test_a_context_without_a_level_left_goes_whole():
    inventory = inventory_of({100: 10.0})

    plan = plan_eviction(inventory, 0, NOW_S)

    assert plan.removed == (make_context(100)[1].context_key,)
    assert plan.rewritten == {}
    assert plan.freed_bytes == inventory.num_bytes


def test_a_context_of_which_no_use_is_recorded_is_the_coldest_and_one_of_the_future_is_used_now():
    inventory = inventory_of({100: 5000.0, 200: NOW_S, 300: None, 400: 999.0})

    contexts = list(dict.fromkeys(owner(name) for name in plan_eviction(inventory, 0, NOW_S).dropped))

    assert contexts[:2] == [300, 400]
    assert set(contexts[2:]) == {100, 200}


def owner(name):
    """First of these contexts that has a chunk to itself; the shared one is the warmest's."""
    return next((first for first in (100, 200, 300, 400) if name in names_of(make_context(first)[1]) - SHARED), 200)


SHARED = names_of(make_context(100)[1]) & names_of(make_context(200)[1])


def test_what_a_writer_claims_stays_and_so_does_the_manifest_that_it_replaces():
    claimed_context = make_context(100)[1]
    inventory = inventory_of({100: 10.0, 200: 20.0}, names_of(claimed_context))

    plan = plan_eviction(inventory, 0, NOW_S)

    assert not set(plan.dropped) & names_of(claimed_context)
    assert claimed_context.context_key not in plan.rewritten
    assert len(plan.dropped) == 6


def test_objects_that_no_manifest_lists_count_and_are_not_dropped():
    orphan = StoredObject("chunks/aa/orphan", 10**6, 0.0)
    inventory = inventory_of({100: 10.0}, extra=[orphan])

    plan = plan_eviction(inventory, 10**6, NOW_S)

    assert orphan.name not in plan.dropped
    assert inventory.num_bytes - plan.freed_bytes == 10**6


def test_a_name_that_was_not_announced_is_left_alone():
    inventory = inventory_of({100: 10.0, 200: 20.0})
    announced = plan_eviction(inventory, inventory.num_bytes - 1, NOW_S).touched

    assert plan_eviction(inventory, 0, NOW_S, announced).dropped == (named(100, 1, 0),)
    # a context that has appeared since then and lists the same object would have to be rewritten too
    assert (
        plan_eviction(inventory, 0, NOW_S, announced - {manifest_name(make_context(100)[1].context_key)}).dropped == ()
    )


def test_only_what_is_old_and_neither_listed_nor_claimed_is_garbage():
    objects = [
        StoredObject(f"chunks/aa/{name}", 1, at_s) for name, at_s in {"old": 10, "young": 990, "future": 2000}.items()
    ]
    inventory = inventory_of({100: 10.0}, {"chunks/aa/claimed"}, [*objects, StoredObject("chunks/aa/claimed", 1, 0.0)])

    assert unlisted(inventory, 100.0, NOW_S) == ["chunks/aa/old"]
    assert unlisted(inventory, 990.0, NOW_S) == ["chunks/aa/old"]
    assert unlisted(inventory, 991.0, NOW_S) == []


# Carried out; test_store_contract.py has the same on every store.


@pytest.fixture
def store():
    return MemoryStore()


def total_bytes(store):
    return sum(entry.size_bytes for entry in store.entries())


@pytest.mark.parametrize("quota_bytes", [0, 5_000, 30_000, 60_000, 10**9])
def test_after_eviction_the_store_is_within_its_quota_and_all_that_is_listed_is_there(store, quota_bytes):
    for first in (100, 200, 300):
        publish(store, first)
    before_bytes = total_bytes(store)
    dry = evict(store, quota_bytes, dry_run=True)
    assert total_bytes(store) == before_bytes

    done = evict(store, quota_bytes)

    check_store(store)
    assert (done.before_bytes, done.after_bytes) == (before_bytes, total_bytes(store))
    assert total_bytes(store) <= quota_bytes
    # rewritten manifests are shorter, which the plan does not foresee
    assert (dry.dropped_objects, dry.removed_contexts) == (done.dropped_objects, done.removed_contexts)
    if quota_bytes == 0:
        assert store.names() == []


def test_a_context_that_was_used_since_is_spared(store):
    cold, warm = publish(store, 100), publish(store, 200)
    time.sleep(0.01)
    record_use(store, cold.context_key)

    evict(store, total_bytes(store) - 1)

    [left] = [manifest for manifest in check_store(store) if manifest.context_key == warm.context_key]
    assert len(left.chunks[1].encodings) == 2
    assert unpack_manifest(store.get(manifest_name(cold.context_key))) == cold


def test_more_than_one_announcement_holds_is_evicted_in_turns(store, monkeypatch):
    monkeypatch.setattr("cachegen.stores.eviction._AT_ONCE", 4)
    monkeypatch.setattr("cachegen.stores.garbage._AT_ONCE", 4)
    monkeypatch.setattr(garbage, "SHORTEST_AGE_S", 0.0)
    publish(store, 100)
    for index in range(9):
        store.put(f"chunks/aa/{index}", b"orphan")

    assert collect_garbage(store, 0.0).removed_objects == 9
    check_store(store)
    assert evict(store, 0).dropped_objects == 9
    assert store.names() == []


class PausedStore(MemoryStore):
    """A store that does something before its first deletion."""

    def __init__(self):
        super().__init__()
        self.before_delete = lambda name: None

    def delete(self, name):
        self.before_delete(name)
        super().delete(name)


def test_manifests_are_true_at_every_deletion(monkeypatch):
    store = PausedStore()
    for first in (100, 200, 300):
        publish(store, first)
    seen = []

    def check(name):
        if name != SWEEP:
            seen.append(name)
            for manifest in map(unpack_manifest, map(store.get, store.names("manifests/"))):
                assert name not in names_of(manifest)
                assert names_of(manifest) <= set(store.names())

    store.before_delete = check
    evict(store, 20_000)
    assert len(seen) > 10


def test_a_writer_waits_for_a_sweep_of_its_objects_and_puts_what_it_removed():
    store, writers = PausedStore(), []
    manifest = publish(store, 100)

    def publish_meanwhile(name):
        if name.startswith("chunks/") and not writers:
            writers.append(threading.Thread(target=publish, args=(store, 100)))
            writers[0].start()
            while not store.names("claims/"):
                time.sleep(0.001)

    store.before_delete = publish_meanwhile
    evict(store, 0)
    writers[0].join()

    assert check_store(store) == [manifest]


def test_a_claim_that_is_made_between_plan_and_removal_is_heard(store, monkeypatch):
    manifest = publish(store, 100)
    monkeypatch.setattr(garbage, "SHORTEST_AGE_S", 0.0)
    store.delete(manifest_name(manifest.context_key))  # so all its objects are garbage, until a writer claims them
    announce = Sweep.announce
    claim = Claim(store, manifest)

    def claim_first(sweep, names):
        if names:
            store.put("claims/writer", pack_manifest(manifest))
        announce(sweep, names)

    monkeypatch.setattr(Sweep, "announce", claim_first)
    monkeypatch.setattr(garbage, "take_inventory", lambda store, now_s, _, keep: take(store, now_s, 60.0, keep))

    assert collect_garbage(store, 0.0).removed_objects == 0
    assert set(store.names("chunks/")) == {name for name in names_of(manifest) if name.startswith("chunks/")}
    claim.release()


take = garbage.take_inventory


def test_writers_of_other_objects_do_not_wait_for_a_sweep(store, monkeypatch):
    monkeypatch.setattr(claims, "_await_end", lambda *_: pytest.fail("waited"))
    with sweeping(store) as sweep:
        sweep.announce(["chunks/aa/other"])
        publish(store, 100)
    check_store(store)


def test_two_sweeps_take_turns(store):
    order = []

    def sweep(name):
        with sweeping(store):
            order.append(name)
            time.sleep(0.01)
            order.append(name)

    threads = [threading.Thread(target=sweep, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order[::2] == order[1::2]
    assert store.names() == []


def test_a_dead_sweep_is_waited_for_once_and_taken_over(store, monkeypatch):
    monkeypatch.setattr(claims, "LEASE_S", 0.3)
    dead = Sweep(store)
    dead.start()
    dead.announce(sorted(names_of(make_context(100)[1])))

    manifest = publish(store, 100)  # waits, and goes on
    assert store.get(SWEEP)
    evict(store, 10**9)

    assert check_store(store) == [manifest]
    with pytest.raises(StoreUnavailableError, match="begin again"):
        dead.announce([])


def test_a_living_sweep_is_not_taken_over_however_long_it_lasts(store, monkeypatch):
    monkeypatch.setattr(claims, "LEASE_S", 0.4)
    other = threading.Thread(target=evict, args=(store, 0))
    with sweeping(store) as sweep:
        other.start()
        content = store.get(SWEEP)
        renewals = 0
        while renewals < 4:
            time.sleep(0.02)
            sweep.announce([])
            renewals += store.get(SWEEP) != content
            content = store.get(SWEEP)
        assert other.is_alive()
    other.join()


def test_a_sweep_that_was_suspended_removes_nothing_more(store, monkeypatch):
    sweep = Sweep(store)
    sweep.start()
    real = time.monotonic
    monkeypatch.setattr(claims.time, "monotonic", lambda: real() + claims.LEASE_S)
    with pytest.raises(StoreUnavailableError, match="held up for"):
        sweep.keep()


def test_an_interrupted_writers_chunks_and_claim_are_collected_when_old(store, monkeypatch):
    kept = publish(store, 100)
    _, manifest, objects = make_context(200)
    claim = Claim(store, manifest)
    claim.renew()
    for key, encoding, data in objects[:5]:
        store.put(chunk_name(key, encoding), data)

    assert collect_garbage(store, 3600.0).removed_objects == 0
    monkeypatch.setattr(garbage, "SHORTEST_AGE_S", 0.0)
    done = collect_garbage(store, 0.0, dry_run=True)
    assert done == collect_garbage(store, 0.0)

    assert done.removed_objects == 3  # the claim, and two chunks that the other context does not share
    assert check_store(store) == [kept]


def test_foreign_objects_are_nobodys_garbage(store, monkeypatch):
    monkeypatch.setattr(garbage, "SHORTEST_AGE_S", 0.0)
    store.put("models/weights", b"1")
    collect_garbage(store, 0.0)
    evict(store, 0)

    assert store.names() == ["models/weights"]


def test_a_damaged_manifest_lists_nothing_and_one_of_another_release_stops_everything(store, monkeypatch):
    monkeypatch.setattr(garbage, "SHORTEST_AGE_S", 0.0)
    manifest = publish(store, 100)
    name = manifest_name(manifest.context_key)
    packed = store.get(name)
    store.put(name, packed.replace(b'"schema":1', b'"schema":2'))
    for sweep in (lambda: evict(store, 0), lambda: collect_garbage(store, 0.0)):
        with pytest.raises(VersionError, match=f"{name}: .*schema 2"):
            sweep()
    assert len(store.names("chunks/")) == 9
    assert SWEEP not in store.names()

    store.put(name, packed[:-1])
    collect_garbage(store, 0.0)
    assert store.names() == []


def test_values_that_make_no_sense_are_refused(store):
    with pytest.raises(InvalidInputError, match="quota of -1 bytes"):
        evict(store, -1)
    with pytest.raises(InvalidInputError, match="age of 59 s could be a writer's work"):
        collect_garbage(store, 59)


def test_the_claim_of_a_failed_publication_ends(store):
    token_ids, manifest, objects = make_context(100)
    with pytest.raises(MismatchError):
        publish_context(store, manifest, token_ids, objects[:-1])

    assert store.names("claims/") == store.names("manifests/") == []


# The commands.


def test_evict_and_collect_say_what_they_did(capsys):
    store = open_store("memory://commands")
    publish(store, 100)
    for flags, said in (
        (["--dry-run"], "would free 18,000 of "),
        ([], "freed 18,"),
    ):
        assert main(["evict", "--store", "memory://commands", "--quota", "32kB", *flags]) == 0
        assert said in capsys.readouterr().out
    check_store(store)
    store.put("chunks/aa/orphan", bytes(5000))

    assert main(["collect", "--store", "memory://commands", "--older-than", "90s"]) == 0
    assert capsys.readouterr().out == "removed 0 objects of 0 bytes\n"
    assert main(["evict", "--store", "memory://commands", "--quota", "1"]) == 1
    assert "5,000 bytes are left, over the quota of 1" in capsys.readouterr().out
    assert store.names() == ["chunks/aa/orphan"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evict", "--quota", "10 gigs"], "'10 gigs' is no size like 10GB"),
        (["evict", "--quota", "-1"], "is no size"),
        (["collect", "--older-than", "1 week"], "'1 week' is no age like"),
        (["collect", "--older-than", "5s"], "an age of 5 s could be a writer's work"),
    ],
)
def test_sizes_and_ages_that_are_none_are_refused(capsys, arguments, message):
    command, flag, value = arguments
    assert main([command, "--store", "memory://commands", f"{flag}={value}"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("4096", 4096), ("10GB", 10**10), ("1.5 GiB", 3 * 2**29), ("512MiB", 2**29), ("0", 0)]
)
def test_sizes_are_read_with_their_units(text, size_bytes):
    from cachegen.commands.evict import parse_size

    assert parse_size(text) == size_bytes


def test_the_lines_of_the_documentation_that_run_eviction_are_understood(tmp_path):
    page = (REPOSITORY / "docs" / "stores.md").read_text(encoding="utf-8")
    commands = re.findall(r"/cachegen (evict .*)$", page, re.MULTILINE)
    store = open_store(str(tmp_path))
    publish(store, 100)

    assert len(commands) == 2
    for command in commands:
        assert main(command.replace("file:///srv/kv", str(tmp_path)).split()) == 0
    check_store(store)
