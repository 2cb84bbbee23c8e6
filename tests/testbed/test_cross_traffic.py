"""Cross traffic: drawn by its seed, recorded as sent, ended when it should be. Over loopback, by its own programs."""

import itertools
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from cachegen import InvalidInputError
from testbed.cross_traffic import MEAN_SPELL_S, CrossTraffic, spells, total_bytes
from testbed.errors import HostError

ROOT = Path(__file__).resolve().parents[2]


class Machine:
    """This machine as a network: every host is it."""

    def __init__(self, *flows):
        self.flows, self.processes = flows, []

    def ip(self, host):
        return "127.0.0.1"

    def popen(self, host, argv, **popen_kwargs):
        self.processes.append(subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, **popen_kwargs))
        return self.processes[-1]


def first_spells(mode, seed, count=200):
    return list(itertools.islice(spells(mode, seed), count))


def wait_for_connection(pid):
    """Wait until a receiver has a second socket beside the one it listens on."""
    for _ in range(3000):
        sockets = [fd for fd in Path(f"/proc/{pid}/fd").iterdir() if str(fd.readlink()).startswith("socket:")]
        if len(sockets) > 1:
            return
        time.sleep(0.01)
    raise AssertionError("no connection came")


def test_spells_depend_on_the_seed_alone_and_have_the_stated_mean():
    found = first_spells("onoff", "0/0", 4000)
    assert found[:200] == first_spells("onoff", "0/0")
    assert first_spells("onoff", "0/1") != first_spells("onoff", "0/0")
    for lengths in zip(*found, strict=True):
        assert sum(lengths) / len(lengths) == pytest.approx(MEAN_SPELL_S, rel=0.1)


def test_bulk_never_pauses_or_ends():
    assert first_spells("bulk", "0/0", 3) == [(0.0, float("inf"))] * 3


def test_an_unknown_kind_is_refused():
    with pytest.raises(InvalidInputError, match="no cross traffic 'udp'; there are onoff, bulk"):
        first_spells("udp", "0")


def test_flows_send_until_the_end_and_every_byte_is_on_record(tmp_path):
    machine, log = Machine(("a", "b"), ("a", "c")), tmp_path / "log.jsonl"
    with CrossTraffic(machine, "bulk", 0, log) as traffic:
        traffic.check()
        for receiver in machine.processes[::2]:
            wait_for_connection(receiver.pid)
        assert not log.read_text()  # bulk is one spell, which has not ended
    rows = [json.loads(line) for line in log.read_text().splitlines()]

    assert {row["flow"] for row in rows} == {"a-b", "a-c"}
    assert total_bytes(log) == {row["flow"]: row["sent_bytes"] for row in rows}
    assert all(row["started_s"] <= row["ended_s"] for row in rows)
    assert all(process.poll() is not None for process in machine.processes)


def test_a_flow_that_dies_is_noticed(tmp_path):
    machine = Machine(("a", "b"))
    with CrossTraffic(machine, "bulk", 0, tmp_path / "log.jsonl") as traffic:
        machine.processes[0].kill()
        machine.processes[0].wait()
        with pytest.raises(HostError, match="cross traffic a-b: ended with status -9"):
            traffic.check()


def test_a_network_without_cross_flows_has_none(tmp_path):
    with CrossTraffic(Machine(), "onoff", 0, tmp_path / "log.jsonl") as traffic:
        traffic.check()
    assert total_bytes(tmp_path / "log.jsonl") == {}
