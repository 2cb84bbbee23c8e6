"""A near cache holds a share of the store, and what it does not hold comes from the far one."""

import asyncio

import pytest

from cachegen import ObjectNotFoundError, StoreSource, open_store
from testbed.near_cache import NearFirstSource, fill_near_cache

KEYS = [f"{number:064x}" for number in range(40)]


@pytest.fixture
def folder(tmp_path):
    store = open_store(str(tmp_path / "store"))
    for key in KEYS:
        for name in (f"chunks/{key[:2]}/{key}/raw", f"chunks/{key[:2]}/{key}/quant8"):
            store.put(name, name.encode())
    for kind in ("manifests", "tokens"):
        store.put(f"{kind}/{KEYS[3][:2]}/{KEYS[3]}", kind.encode())
    return tmp_path


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def fill(folder, name, share, seed):
    found = fill_near_cache(folder / "store", folder / name, share, seed)
    assert found["keys"] == len(KEYS)
    return names(folder / name)


def test_a_key_is_held_with_all_of_its_objects_or_not_at_all(folder):
    held = fill(folder, "near", 0.5, 0)
    keys = {name.split("/")[2] for name in held}

    assert 5 < len(keys) < 35
    for key in KEYS:
        objects = [name for name in names(folder / "store") if key in name and not name.startswith(".tmp")]
        assert [name for name in held if key in name] == (objects if key in keys else [])


def test_the_share_and_the_seed_say_what_is_held(folder):
    assert fill(folder, "a", 0.5, 0) == fill(folder, "b", 0.5, 0)
    assert fill(folder, "c", 0.5, 1) != names(folder / "a")
    assert fill(folder, "d", 0.0, 0) == []
    assert len(fill(folder, "e", 1.0, 0)) == 2 * len(KEYS) + 2


def test_the_near_one_is_asked_first_and_the_far_one_for_what_it_lacks(folder):
    (folder / "store/chunks/00" / KEYS[5] / "raw").write_bytes(b"far, and other")
    fill(folder, "near", 1.0, 0)
    near = open_store(str(folder / "near"))
    near.delete(f"chunks/00/{KEYS[5]}/raw")

    async def fetch():
        far_only, both = f"chunks/00/{KEYS[5]}/raw", f"chunks/00/{KEYS[6]}/raw"
        source = NearFirstSource(StoreSource(near), StoreSource(open_store(str(folder / "store"))))
        got = []
        first = [await source.fetch(name, 200, lambda: None, on_bytes=got.append) for name in (far_only, both)]
        with pytest.raises(ObjectNotFoundError):
            await source.fetch("chunks/00/absent/raw", 200, lambda: None)
        await source.close()
        return first, got, source.near_bytes, source.received_bytes

    (far, near_data), got, near_bytes, received_bytes = asyncio.run(fetch())
    assert (far, near_data) == (b"far, and other", f"chunks/00/{KEYS[6]}/raw".encode())
    assert (near_bytes, received_bytes) == (len(near_data), len(far) + len(near_data)) == (got[1], sum(got))
