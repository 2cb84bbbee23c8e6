"""Whatever breaks, and whenever: the right tokens, within bounds, and the log says what happened."""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from faulty_load import (
    METHODS,
    PATIENCE_S,
    SLO_S,
    SLOW_BYTES_PER_S,
    check,
    flip,
    load,
    objects,
    said,
)
from faulty_server import FaultyServer
from slow_link import SlowLink
from stored_context import LADDER
from tiny_models import random_tokens, tiny_llama

from cachegen import (
    InvalidInputError,
    LoadLimits,
    MismatchError,
    ProfileBuilder,
    StoreUnavailableError,
    get_kv,
    store_kv,
)
from cachegen.manifest import chunk_name


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fault", ["killed", "killed and restarted", "stalled", "stalled for a while"])
def test_a_server_that_fails_at_any_moment_leaves_the_right_tokens(stored, clean, method, fault):
    chance = random.Random(f"{fault}/{method}")
    with ExitStack() as stack:
        server = stack.enter_context(FaultyServer(stored.root))
        link = stack.enter_context(SlowLink(server.port, SLOW_BYTES_PER_S))
        at_s = chance.uniform(0.0, 0.6)
        steps = {
            "killed": [(at_s, server.kill)],
            "killed and restarted": [(at_s, server.kill), (at_s, server.restart)],
            "stalled": [(at_s, server.pause)],
            "stalled for a while": [(at_s, server.pause), (at_s + 0.5, server.unpause)],
        }[fault]
        server.later(*steps)
        loaded, events = load(stored, link.url, method, list(stored.cache.token_ids))

    check(stored, clean, loaded)
    # every chunk that did not come as it was decided has its reason in the log
    fetched = {fields["chunk"] for fields in said(events, "fetch")}
    decided = {fields["chunk"] for fields in said(events, "decision") if fields["action"] != "recompute"}
    failed = {fields["chunk"] for fields in said(events, "fetch_failed", "fetch_cancelled")}
    assert decided - fetched <= failed


@pytest.mark.parametrize("method", ["fixed", "paper"])
def test_a_silent_server_is_given_up_after_one_timeout_and_the_log_says_so(stored, clean, method):
    with FaultyServer(stored.root) as server, SlowLink(server.port, 4000) as link:
        begun = time.monotonic()
        server.later((0.5, server.pause))
        loaded, events = load(stored, link.url, method, list(stored.cache.token_ids))
        took_s = time.monotonic() - begun

    check(stored, clean, loaded)
    assert "recompute" in loaded.chunk_sources
    assert said(events, "store_given_up", "index_given_up")
    # far from what a timeout for each of four chunks would take, twice
    assert took_s < SLO_S + PATIENCE_S + 20


def stall_at_the_first_chunk(server, *later):
    """Stop the server when the index has come: what it then is asked for, no buffer holds. ``later``: what follows."""

    def on_event(event):
        if event == "index":
            server.pause()
            server.later(*later)

    return on_event


@pytest.mark.parametrize("method", ["fixed", "paper"])
def test_a_stall_of_ten_seconds_and_more_costs_one_timeout_at_the_default_limits(stored, clean, method):
    patience_s = LoadLimits().patience_s
    with FaultyServer(stored.root) as server:
        begun_s = time.monotonic()
        on_event = stall_at_the_first_chunk(server)
        loaded, events = load(stored, server.url, method, None, SLO_S, patience_s, silence_s=30.0, on_event=on_event)
        took_s = time.monotonic() - begun_s

    check(stored, clean, loaded)
    # of the last chunk, asked for with the index, a buffer may hold what the server had sent
    assert loaded.chunk_sources[:3] == ("recompute",) * 3
    [reason] = [fields["reason"] for fields in said(events, "store_given_up")]
    assert re.search(r"silent for 5\.\d s", reason)
    # recomputing takes far less here than is said to the controller
    assert took_s < max(SLO_S, patience_s) + 2.0


def test_a_stall_of_ten_seconds_is_waited_out_by_the_more_patient(stored, clean):
    with FaultyServer(stored.root) as server:
        on_event = stall_at_the_first_chunk(server, (10.0, server.unpause))
        begun_s = time.monotonic()
        loaded, events = load(stored, server.url, "fixed", None, SLO_S, 20.0, silence_s=30.0, on_event=on_event)
        took_s = time.monotonic() - begun_s

    check(stored, clean, loaded)
    assert loaded.chunk_sources == ("raw",) * 4
    assert not said(events, "store_given_up")
    # the last chunk's request may have reached the server before it stopped, whose own limit to an answer is as long
    assert {fields["chunk"] for fields in said(events, "fetch_failed")} <= {3}
    assert 10.0 <= took_s < 15.0


def test_an_index_is_asked_for_again_while_the_server_restarts(stored, clean):
    with FaultyServer(stored.root) as server:
        server.kill()
        server.later((0.5, server.restart))
        loaded, events = load(stored, server.url, "fixed", slo_s=60.0)

    check(stored, clean, loaded)
    assert loaded.chunk_sources == ("raw",) * 4
    assert said(events, "index_failed")
    assert said(events, "index")


def test_without_store_and_tokens_the_request_fails_with_what_happened(stored):
    with FaultyServer(stored.root) as server:
        server.kill()
        with pytest.raises(
            StoreUnavailableError, match=r"no index within 0\.8 s of the request, at \d+ tries: .*refused|Connect"
        ):
            load(stored, server.url, "fixed", slo_s=0.5, patience_s=0.3)


@pytest.mark.parametrize("method", METHODS)
def test_with_the_tokens_a_dead_store_ends_in_recomputing(stored, clean, method):
    with FaultyServer(stored.root) as server:
        server.kill()
        loaded, events = load(stored, server.url, method, list(stored.cache.token_ids), slo_s=0.6)

    check(stored, clean, loaded)
    assert set(loaded.chunk_sources) == {"recompute"}
    assert "no index" in said(events, "index_given_up")[0]["error"]


def test_tokens_of_another_context_are_refused(stored):
    with FaultyServer(stored.root) as server, pytest.raises(InvalidInputError, match="56 token_ids"):
        load(stored, server.url, "fixed", random_tokens(56, seed=9))


def truncate(path, chance, others):
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def remove(path, chance, others):
    path.unlink()


def exchange(path, chance, others):
    path.write_bytes(chance.choice(others).read_bytes())


@pytest.mark.parametrize("method", ["fixed", "paper", "meet"])
@pytest.mark.parametrize("harm", [flip, truncate, remove, exchange], ids=lambda harm: harm.__name__)
def test_harmed_objects_are_not_believed(stored, clean, fresh, method, harm):
    chance = random.Random(f"{method}/{harm.__name__}")
    encodings = METHODS[method][1]
    harmed = chance.sample(range(4), 2)
    for index in harmed:
        for path in objects(stored, fresh, index, encodings):
            # another chunk's of the same encoding
            others = [objects(stored, fresh, other, [path.name])[0] for other in range(4) if other != index]
            harm(path, chance, others)

    with FaultyServer(fresh) as server:
        loaded, events = load(stored, server.url, method)

    check(stored, clean, loaded)
    assert [loaded.chunk_sources[index] for index in harmed] == ["recompute"] * 2
    asked = {fields["chunk"] for fields in said(events, "decision") if fields["action"] != "recompute"}
    assert asked & {*harmed} <= {
        fields["chunk"] for fields in said(events, "decode_failed", "fetch_failed", "fetch_cancelled")
    }


@pytest.mark.parametrize("method", ["fixed", "paper", "meet"])
def test_another_level_in_the_place_of_each_is_not_believed(stored, clean, fresh, method):
    encodings = METHODS[method][1]
    for index in range(4):
        [*paths] = objects(stored, fresh, index, ["quant8", *encodings])
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
            path.write_bytes(content)

    with FaultyServer(fresh) as server:
        loaded, _ = load(stored, server.url, method)

    check(stored, clean, loaded)
    assert loaded.chunk_sources == ("recompute",) * 4


def test_chunks_that_another_profile_coded_are_not_believed(stored, clean, fresh, tmp_path):
    builder = ProfileBuilder(stored.model.shape, stored.model.fingerprint)
    builder.add(stored.cache.chunk(0, 56))
    other = builder.build()
    theirs = store_kv(str(tmp_path / "other"), stored.model, stored.cache, LADDER, other, 16)
    for mine, foreign in zip(stored.manifest.chunks, theirs.chunks, strict=True):
        for encoding in LADDER:
            shutil.copyfile(
                tmp_path / "other" / chunk_name(foreign.key, encoding), fresh / chunk_name(mine.key, encoding)
            )

    with FaultyServer(fresh) as server:
        loaded, events = load(stored, server.url, "meet")

    check(stored, clean, loaded)
    assert set(loaded.chunk_sources) == {"recompute"}
    assert said(events, "fetch_failed", "decode_failed") or not said(events, "fetch")


LOAD_PROGRAM = """
import sys, time, threading
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from stored_context import store_context
from cachegen import get_kv
import torch
root, offset = Path(sys.argv[3]), Path(sys.argv[4])
stored = store_context(root)
before = time.time()
offset.write_text("+86400\\n")
loaded = get_kv(str(root), stored.model, stored.manifest.context_key, "raw", stored.profile)
assert time.time() - before > 80000, "the clock did not jump"
offset.write_text("-86400\\n")
again = get_kv(sys.argv[5], stored.model, stored.manifest.context_key, "raw", stored.profile)
assert time.time() < before - 80000, "the clock did not jump back"
print(*(torch.equal(each.chunk(0, 56), stored.cache.chunk(0, 56)) for each in (loaded, again)))
"""


def test_a_wall_clock_that_jumps_by_a_day_and_back_matters_to_nobody(stored, tmp_path):
    [library] = [*Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), *Path("/usr/lib/faketime").glob("*.so.1")][:1]
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    here = Path(__file__).resolve().parent
    with FaultyServer(stored.root) as server:
        command = [sys.executable, "-c", LOAD_PROGRAM, str(here), str(here.parents[1])]
        done = subprocess.run(
            [*command, str(tmp_path / "store"), str(offset), server.url],
            capture_output=True,
            text=True,
            env=environment,
        )
    assert (done.stdout.split(), done.returncode) == (["True", "True"], 0), done.stderr


FULL_DISK_PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from stored_context import store_context
from tiny_models import random_tokens
from cachegen import StoreUnavailableError, calculate_kv, get_kv, open_store, store_kv
root = Path(sys.argv[3])
stored = store_context(root)
before = {name: (root / name).read_bytes() for name in open_store(str(root)).names()}
for seed in range(5, 500):
    cache = calculate_kv(stored.model, random_tokens(200, seed=seed))
    try:
        store_kv(str(root), stored.model, cache, ["raw", "quant8"], stored.profile, 16)
    except StoreUnavailableError as error:
        print(error)
        break
else:
    raise SystemExit("the disk never filled up")
store = open_store(str(root))
manifests = [name for name in store.names("manifests/")]
assert len(manifests) == seed - 4, "a context that was not stored is listed"
assert not list((root / ".tmp").iterdir()), "half an object is left"
for name, data in before.items():
    assert (root / name).read_bytes() == data
kv = get_kv(str(root), stored.model, stored.manifest.context_key, "raw", stored.profile)
assert kv.token_ids == stored.cache.token_ids
"""


def test_a_full_disk_surfaces_and_nothing_half_written_is_visible(tmp_path):
    here = Path(__file__).resolve().parent
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" && shift && exec "$@"'
    done = subprocess.run(
        [
            *("unshare", *user, "--mount", "--propagation", "private", "bash", "-c", script, "full", str(tmp_path)),
            *(sys.executable, "-c", FULL_DISK_PROGRAM, str(here), str(here.parents[1]), str(tmp_path)),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout


def test_get_kv_has_no_deadline_and_takes_what_comes_slowly(stored):
    with FaultyServer(stored.root) as server, SlowLink(server.port, 20_000) as link:
        cache = get_kv(link.url, stored.model, stored.manifest.context_key, "raw", stored.profile)
    assert torch.equal(cache.chunk(0, 56), stored.cache.chunk(0, 56))


def test_another_models_tokens_never_meet_this_ones_store(stored):
    with FaultyServer(stored.root) as server, pytest.raises(MismatchError, match="model fingerprint"):
        get_kv(server.url, tiny_llama(seed=7), stored.manifest.context_key, "raw", stored.profile)
