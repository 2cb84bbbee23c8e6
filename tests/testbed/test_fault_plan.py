"""Plans of faults are read strictly, and the injector carries them out and mends everything."""

import random
import threading
import time

import pytest

from cachegen import InvalidInputError, StoreUnavailableError, UnknownNameError, open_store
from testbed.faults import FAULTS, Scene
from testbed.faults.injector import FaultInjector
from testbed.faults.plan import PlannedFault, parse_faults
from testbed.replay import LinkReplay
from testbed.trace import load_trace


def test_a_plan_is_read_in_order_of_time():
    assert parse_faults("link-down@0.5s+10s, corrupt:5%@0s") == (
        PlannedFault("corrupt:5%@0s", "corrupt", 0.0, None, 0.05),
        PlannedFault("link-down@0.5s+10s", "link-down", 0.5, 10.0),
    )
    assert parse_faults("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "kill-server",
        "kill-server@1",
        "kill-server@-1s",
        "kill-server@1s+0s",
        "corrupt:0%@0s",
        "corrupt:101%@0s",
        "kill-server:5%@0s",
        "kill-server@1s,",
        "corrupt@nans",
    ],
)
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(InvalidInputError, match="faults: "):
        parse_faults(text)


def test_an_unknown_kind_is_refused_with_those_there_are():
    with pytest.raises(UnknownNameError, match="kill-server"):
        parse_faults("earthquake@1s")


class Recorder:
    """Stands in for the server and the link of a run, which tests of whole runs have for real."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda: self.calls.append(name)


@pytest.fixture
def store(tmp_path):
    """Two contexts' objects in two encodings."""
    store = open_store(str(tmp_path / "store"))
    for key in ("aa", "bb", "cc"):
        for encoding in ("raw", "quant8"):
            store.put(f"chunks/{key}/{key * 32}/{encoding}", f"{key} in {encoding}".encode())
    store.put("manifests/aa/aa", b'{"profile_hash":"00"}')
    store.put("tokens/aa/aa", bytes(8))
    return tmp_path / "store"


def contents(store):
    return {name: open_store(str(store)).get(name) for name in open_store(str(store)).names()}


@pytest.mark.parametrize(
    ("kind", "hit"),
    [
        ("corrupt", ["chunks/"] * 3),
        ("corrupt-manifest", ["manifests/"]),
        ("corrupt-tokens", ["tokens/"]),
        ("missing", ["chunks/"] * 3),
        ("foreign-chunk", ["chunks/"] * 3),
        ("foreign-profile", ["manifests/"]),
    ],
)
def test_what_a_fault_does_to_the_store_is_done_and_undone(store, kind, hit):
    before = contents(store)
    scene, fault = Scene(Recorder(), Recorder(), store), FAULTS[kind](0.5)
    detail = fault.begin(scene, random.Random(1))
    broken = contents(store)
    fault.end(scene)

    changed = {name for name in before if before[name] != broken.get(name)}
    assert [name[: name.index("/") + 1] for name in sorted(changed)] == hit
    assert detail
    assert contents(store) == before


OBJECT_KINDS = ("corrupt", "corrupt-manifest", "missing", "foreign-chunk", "foreign-profile")


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("second", OBJECT_KINDS)
@pytest.mark.parametrize("first", OBJECT_KINDS)
def test_faults_that_overlap_leave_each_others_objects_alone_and_the_store_as_it_was(store, first, second, share):
    before = contents(store)
    for ends_first in (0, 1):
        scene, faults = Scene(Recorder(), Recorder(), store), [FAULTS[kind](share) for kind in (first, second)]
        for seed, fault in enumerate(faults):
            assert fault.begin(scene, random.Random(seed))
        faults[ends_first].end(scene)
        faults[1 - ends_first].end(scene)
        assert contents(store) == before
        assert not scene.hit


def test_a_fault_that_finds_all_objects_hit_says_so(store):
    scene = Scene(Recorder(), Recorder(), store)
    FAULTS["missing"](1.0).begin(scene, random.Random(1))
    assert FAULTS["corrupt"](1.0).begin(scene, random.Random(1)) == (
        "a bit flipped in 0 objects, for other faults have hit them all"
    )


@pytest.mark.parametrize(
    ("kinds", "calls"),
    [
        (("link-down", "link-down"), ["interrupt", "interrupt", "resume"]),
        (("stall-server", "stall-server"), ["pause", "pause", "unpause"]),
        (("kill-server", "kill-server"), ["kill", "kill", "restart"]),
    ],
)
def test_what_two_faults_hold_is_let_go_by_the_last_of_them(store, kinds, calls):
    recorder = Recorder()
    scene, faults = Scene(recorder, recorder, store), [FAULTS[kind](0.5) for kind in kinds]
    for fault in faults:
        fault.begin(scene, random.Random(1))
    faults[1].end(scene)
    assert recorder.calls == calls[:2]
    faults[0].end(scene)
    assert recorder.calls == calls


def test_a_server_that_comes_back_during_a_stall_stands_still_too(store):
    server = Recorder()
    scene, stall, kill = Scene(server, Recorder(), store), FAULTS["stall-server"](0.5), FAULTS["kill-server"](0.5)
    stall.begin(scene, random.Random(1))
    kill.begin(scene, random.Random(1))
    kill.end(scene)
    stall.end(scene)
    assert server.calls == ["pause", "kill", "restart", "pause", "unpause"]


def test_a_slow_disk_does_not_wake_a_stalled_server(store):
    server = Recorder()
    scene, stall, slow = Scene(server, Recorder(), store), FAULTS["stall-server"](0.5), FAULTS["slow-disk"](0.5)
    stall.begin(scene, random.Random(1))
    slow.begin(scene, random.Random(1))
    slow.end(scene)
    assert "unpause" not in server.calls
    stall.end(scene)
    assert server.calls[-1] == "unpause"


@pytest.mark.parametrize("kind", ["foreign-profile", "foreign-chunk:5%"])
def test_a_fault_that_writes_to_a_disk_that_is_full_then_is_refused(kind):
    for plan in (f"disk-full@1s,{kind}@0s", f"disk-full@0s+2s,{kind}@1s", f"{kind}@0s+2s,disk-full@1s"):
        with pytest.raises(InvalidInputError, match="writes to the disk that 'disk-full"):
            parse_faults(plan)
    assert len(parse_faults(f"disk-full@0s+1s,{kind}@2s")) == 2


def test_faults_begin_and_end_at_their_times_and_are_logged(store):
    server, link, events = Recorder(), Recorder(), []
    plan = parse_faults("kill-server@0.05s+0.05s,link-down@0.02s")
    origin_s = time.monotonic()
    injector = FaultInjector(plan, Scene(server, link, store), origin_s, events.append, "seed")
    injector.start()
    while len(events) < 3:
        time.sleep(0.01)
    assert (server.calls, link.calls) == (["kill", "restart"], ["interrupt"])
    injector.stop()

    assert link.calls == ["interrupt", "resume"]
    assert [(event["event"], event["fault"]) for event in events] == [
        ("fault", "link-down@0.02s"),
        ("fault", "kill-server@0.05s+0.05s"),
        ("fault_ended", "kill-server@0.05s+0.05s"),
        ("fault_ended", "link-down@0.02s"),
    ]
    assert all(0.0 <= event["t_s"] <= event["done_s"] for event in events)


def test_a_fault_that_cannot_be_injected_is_an_error_of_the_run(store):
    asked = threading.Event()

    class Broken(Recorder):
        def kill(self):
            asked.set()
            raise StoreUnavailableError("no such server")

    injector = FaultInjector(
        parse_faults("kill-server@0s"), Scene(Broken(), Recorder(), store), time.monotonic(), lambda event: None, "seed"
    )
    injector.start()
    asked.wait()
    with pytest.raises(StoreUnavailableError, match="no such server"):
        injector.stop()


class SteadyLink:
    def __init__(self):
        self.rates = []

    def set_rate(self, rate_mbps):
        self.rates.append(rate_mbps)
        return max(rate_mbps, 0.008)

    def set_delay(self, delay_ms):
        pass


def test_an_interruption_stands_in_the_replays_log_in_order_of_time():
    link = SteadyLink()
    replay = LinkReplay(link)
    replay.start(load_trace("lte"), 0.0, time.monotonic())
    while not link.rates:
        time.sleep(0.01)
    replay.interrupt()
    replay.resume()
    log = replay.stop()

    down = link.rates.index(0.0)
    assert link.rates[down + 1] > 0.0
    assert 0.008 in [step.rate_mbps for step in log.steps]
    planned = [step.planned_s for step in log.steps]
    assert planned == sorted(planned)
