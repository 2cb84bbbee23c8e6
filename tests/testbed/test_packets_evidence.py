"""A run directory's captures confirm it, or say what is wrong with it."""

import json
import struct

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from cachegen import InvalidInputError
from testbed.arguments import parse_arguments
from testbed.config import make_config
from testbed.packets.evidence import examine

STORAGE, GPU = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
START_S, DELAY_S = 1_700_000_000.0, 0.02
FRAME_BYTES, SPACING_S = 1000, 0.001  # 8 Mbit/s


def write_capture(path, source, target, times_s):
    """The handshake, and full frames from storage to gpu, cut to their headers."""
    up = Ether(src=GPU, dst=STORAGE) / IP(src="10.0.0.2", dst="10.0.0.1")
    down = Ether(src=STORAGE, dst=GPU) / IP(src="10.0.0.1", dst=target)
    shift_s = 0.0 if source == "gpu" else DELAY_S
    syn, answer = up / TCP(sport=5000, dport=80, seq=9, flags="S"), down / TCP(sport=80, dport=5000, ack=10, flags="SA")
    data = bytes(down / TCP(sport=80, dport=5000, seq=0, flags="A") / bytes(FRAME_BYTES - 54))
    with path.open("wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1))
        records = [(START_S - 0.5 + shift_s, bytes(syn)), (START_S - 0.5 + 2 * DELAY_S - shift_s, bytes(answer))]
        for index, time_s in times_s:
            # the sequence number lies behind the headers of Ethernet and IP and two ports
            records.append((time_s, data[:38] + (index * (FRAME_BYTES - 54)).to_bytes(4) + data[42:]))
        for time_s, frame in records:
            seconds, kept = int(time_s), frame[:96]
            file.write(struct.pack("=IIII", seconds, round((time_s - seconds) * 1e9), len(kept), len(frame)) + kept)


def link_csv(names, cells):
    """Twenty rows that were busy throughout, whose bytes nobody asks for here."""
    columns = "start_s,duration_s,capacity_bytes,delivered_bytes,busy_s,busy_capacity_bytes,busy_delivered_bytes"
    rows = [f"{cells},{index / 10},0.1,0,0,0.1,0,0" for index in range(20)]
    return "\n".join([f"{names},{columns}", *rows]) + "\n"


@pytest.fixture
def run(tmp_path):
    """Make a run directory; ``lose`` says which frames never arrive, ``kind`` what the interface of gpu is."""

    def make(*, lose=lambda index: False, kind="veth", missed=0, target="10.0.0.2", flags=()):
        (tmp_path / "flat.csv").write_text("time_s,rate_mbps\n0,8\n")
        settings = make_config(parse_arguments(["--trace", str(tmp_path / "flat.csv"), *flags])).to_json()
        sent = [(index, START_S + index * SPACING_S) for index in range(2000)]
        came = [(index, time_s + DELAY_S) for index, time_s in sent if not lose(index)]
        write_capture(tmp_path / "storage.pcap", "storage", target, sent)
        write_capture(tmp_path / "gpu.pcap", "gpu", target, came)
        hosts = {}
        for name, ip, hardware in (("storage", "10.0.0.1", STORAGE), ("gpu", "10.0.0.2", GPU)):
            door = {"kind": kind if name == "gpu" else "veth", "hardware": hardware}
            interfaces = {"lo": {"kind": "loopback", "hardware": "00:00:00:00:00:00"}, f"{name}-eth0": door}
            hosts[name] = {"file": f"{name}.pcap", "ip": ip, "interfaces": interfaces, "routes": ["10.0.0.0/24"]}
            hosts[name] |= {"written": 2002, "dropped": missed, "unwritten": 0}
        (tmp_path / "link.csv").write_text(link_csv("request,method", "0,raw"))
        replay = {"request": 0, "method": "raw", "start_s": START_S, "end_s": START_S + 2, "trace_offset_s": 0.0}
        for name, content in (
            ("config.json", settings),
            ("manifest.json", {"captures": hosts}),
            ("replays.json", {"replays": [replay]}),
        ):
            (tmp_path / name).write_text(json.dumps(content))
        return {finding.what: finding for finding in examine(tmp_path)}

    return make


def test_the_replay_of_a_batch_is_found_by_its_number(run, tmp_path):
    run()
    (tmp_path / "link.csv").write_text(link_csv("request,batch,method", ",3,raw"))
    replay = {"request": None, "batch": 3, "method": "raw", "start_s": START_S, "end_s": START_S + 2}
    (tmp_path / "replays.json").write_text(json.dumps({"replays": [replay | {"trace_offset_s": 0.0}]}))
    [rate] = [finding for finding in examine(tmp_path) if finding.what == "rate"]
    assert rate.found.startswith("0.00% off")

    (tmp_path / "replays.json").write_text(json.dumps({"replays": [replay | {"batch": 4, "trace_offset_s": 0.0}]}))
    with pytest.raises(InvalidInputError, match=r"replays\.json: has no replay of batch 3, raw$"):
        examine(tmp_path)


def test_a_run_is_examined_where_neither_its_directory_nor_the_trace_is_where_it_was(run, tmp_path):
    run()
    settings = json.loads((tmp_path / "config.json").read_text()) | {
        "contexts": "/gone/my.jsonl",
        "trace": "/gone/my.csv",
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "flat.csv").rename(tmp_path / "trace.csv")

    [rate] = [finding for finding in examine(tmp_path) if finding.what == "rate"]
    assert rate.found.startswith("0.00% off")


def wrong(findings):
    return {what for what, finding in findings.items() if not finding.is_right}


def test_an_exact_run_is_confirmed(run):
    found = run()

    assert wrong(found) == set()
    assert found["rate"].found.startswith("0.00% off")
    assert found["round trip"].found.startswith("40.00 ms")
    assert found["retransmissions"].found == "0 of 2000 segments with payload"


def test_frames_that_never_arrived_contradict_an_exact_link_and_not_one_that_loses_as_many(run):
    assert wrong(run(lose=lambda index: index % 10 == 3)) == {"rate", "loss"}
    assert wrong(run(lose=lambda index: index % 10 == 3, flags=["--loss", "10%"])) == set()


def test_a_way_out_of_the_namespaces_is_named(run):
    by_interface, by_address = run(kind="ether"), run(target="192.0.2.1")

    assert wrong(by_interface) == {"confinement"}
    assert by_interface["confinement"].found == "gpu has the interface gpu-eth0"
    assert "address 192.0.2.1" in by_address["confinement"].found


def test_a_capture_that_missed_a_frame_and_another_delay_are_told(run):
    assert wrong(run(missed=1)) == {"captured"}
    assert wrong(run(flags=["--delay-ms", "30"])) >= {"round trip"}


def test_a_run_whose_readings_of_the_link_are_gone_or_damaged_is_refused_by_name(run, tmp_path):
    run()
    link = tmp_path / "link.csv"
    link.write_text(link.read_text().replace("duration_s", "length_s"))
    with pytest.raises(InvalidInputError, match=r"link\.csv:2: no row of a link's account: KeyError"):
        examine(tmp_path)
    link.unlink()
    with pytest.raises(InvalidInputError, match=r"link\.csv: cannot be read"):
        examine(tmp_path)


def test_a_replay_that_does_not_say_when_it_began_is_refused_by_name(run, tmp_path):
    run()
    replays = tmp_path / "replays.json"
    replays.write_text(replays.read_text().replace("trace_offset_s", "trace_place_s"))
    with pytest.raises(InvalidInputError, match=r"replays\.json: no replays of a run: KeyError: 'trace_offset_s'"):
        examine(tmp_path)


def test_a_run_without_captures_is_refused_with_the_flag_that_makes_them(run, tmp_path):
    run()
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="--pcap"):
        examine(tmp_path)
    with pytest.raises(InvalidInputError, match=r"config\.json: cannot be read"):
        examine(tmp_path / "no-such-run")
