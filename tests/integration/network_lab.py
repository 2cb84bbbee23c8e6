"""One replay of a trace under real TCP, as JSON: what the network tests run in namespaces of its own.

python -m testbed.isolation python tests/integration/network_lab.py replay flow 5 1.0
"""

import contextlib
import dataclasses
import json
import socket
import statistics
import sys
import threading
import time

PORT = 9000
OFFSET_S = 10.0
PIECE = bytes(1 << 16)
TRANSFER_BYTES = (1_500_000, 400_000, 100_000, 800_000, 3000)


class FaultyLink:
    """A link whose rate is off by a factor, and which says it is not."""

    def __init__(self, network, speed):
        self._network, self._speed = network, speed

    def set_rate(self, rate_mbps):
        self._network.set_rate(rate_mbps * self._speed)
        return rate_mbps

    def set_delay(self, delay_ms):
        self._network.set_delay(delay_ms)


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def replay(kind, duration_s, speed):
    from testbed.cpu_account import CpuWatch
    from testbed.fidelity import judge, summarize
    from testbed.link_settings import LinkSettings
    from testbed.network import EmulatedNetwork
    from testbed.replay import LinkReplay
    from testbed.sampler import LinkSampler
    from testbed.trace import load_trace

    with EmulatedNetwork(link=LinkSettings(delay_ms=10)) as network:
        server = network.popen("storage", [sys.executable, __file__, "serve"], stdout=-1)
        server.stdout.readline()
        sampler, replaying = LinkSampler(network.read_link), LinkReplay(FaultyLink(network, float(speed)))
        watch = CpuWatch(network.sessions)
        sampler.start()
        replaying.start(load_trace("lte"), OFFSET_S, time.monotonic())
        fetch = [sys.executable, __file__, "fetch", network.storage_ip, kind, duration_s]
        client = network.popen("gpu", fetch, stdout=-1)
        congestion_control, _ = client.communicate(timeout=60)
        log = replaying.stop()
        time.sleep(0.1)  # the last frames are on their way
        sampler.stop()
        summary = summarize(sampler.since(0), [log], 0.01)
        rtt_ms = network.settings["rtt_ms"]["min"]
        report = network.delay_report()
        verdict = judge(summary, LinkSettings(delay_ms=10), rtt_ms=[rtt_ms], delay_report=report, cpu=watch.use())
        result = {"settings": network.settings, "report": report, "congestion_control": congestion_control.decode()}
    say(json.dumps({**result, **dataclasses.asdict(verdict), **dataclasses.asdict(summary)}))


def serve():
    def answer(connection):
        with connection, connection.makefile("rb") as requests, contextlib.suppress(OSError):
            for line in requests:
                wanted = int(line)
                while wanted > 0:
                    wanted -= connection.send(PIECE[:wanted])

    with socket.create_server(("", PORT)) as server:
        say("ready")
        while True:
            threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


def fetch(address, kind, duration_s):
    end_s = time.monotonic() + float(duration_s)
    sizes = [1 << 40] if kind == "flow" else TRANSFER_BYTES
    count = 0
    while time.monotonic() < end_s:
        with socket.create_connection((address, PORT)) as connection:
            if count == 0:
                say(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).strip(b"\0").decode())
            wanted = sizes[count % len(sizes)]
            connection.sendall(b"%d\n" % wanted)
            while wanted > 0 and time.monotonic() < end_s:
                wanted -= len(connection.recv(1 << 18))
        count += 1


def hold():
    """Build the network with a process in each host, and stay."""
    from testbed.network import EmulatedNetwork

    with EmulatedNetwork() as network:
        for host in ("storage", "gpu"):
            network.popen(host, ["sleep", "1000"])
        say("built")
        time.sleep(1000)


def wait(grace_s):
    """Wait for an interruption; end ``grace_s`` after it."""
    from testbed.isolation import interrupt_on_supervisor_exit

    interrupt_on_supervisor_exit()
    try:
        say("waiting")
        time.sleep(1000)
    except KeyboardInterrupt:
        say("interrupted")
        time.sleep(float(grace_s))
        sys.exit(130)


def traced_delay():
    """Print round trips at the delays that set_delay gives, and the rates that set_rate gives."""
    from testbed.link_settings import LinkSettings
    from testbed.network import EmulatedNetwork

    with EmulatedNetwork(link=LinkSettings(delay_ms=5), initial_rate_mbps=8) as network:
        before_ms = statistics.median(network.ping_ms(9))
        network.set_delay(25)
        after_ms = statistics.median(network.ping_ms(9))
        say(json.dumps({"rtt_ms": [before_ms, after_ms], "rates": [network.set_rate(0), network.set_rate(33)]}))


def link(wanted):
    """Say what a link does to pings and to numbered datagrams; ``wanted`` is JSON."""
    from testbed.link_settings import LinkSettings
    from testbed.network import EmulatedNetwork

    wanted = json.loads(wanted)
    with EmulatedNetwork(link=LinkSettings(**wanted["link"]), backend=wanted["backend"]) as network:
        rtt_ms = network.ping_ms(wanted.get("pings", 9))
        receiver = network.popen("gpu", [sys.executable, __file__, "number"], stdin=-1, stdout=-1)
        receiver.stdout.readline()
        early = 0
        if wanted.get("outage"):
            network.set_rate(0)
        count = [sys.executable, __file__, "count", network.wiring.ip("gpu"), str(wanted.get("datagrams", 50))]
        network.popen("storage", count).wait(60)
        if wanted.get("outage"):
            time.sleep(0.5)
            early = network.delay_report()["passed"]["down"]
            network.set_rate(20)
        time.sleep(0.5)  # the last datagrams are on their way
        numbers, _ = receiver.communicate(timeout=60)
        network.set_delay(wanted.get("delay_later_ms", 5))
        result = {"settings": network.settings, "report": network.delay_report(), "early": early}
        result |= {"rtt_ms": rtt_ms, "rtt_later_ms": network.ping_ms(9), "numbers": json.loads(numbers)}
    say(json.dumps(result))


def number():
    """Print the numbers of the datagrams that came, in their order, when standard input ends."""
    numbers = []

    def listen():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(("", PORT))
            say("ready")
            while True:
                numbers.append(int.from_bytes(datagrams.recv(2000)[:4]))

    threading.Thread(target=listen, daemon=True).start()
    sys.stdin.read()
    say(json.dumps(numbers))


def count(address, datagrams):
    """Send numbered datagrams, a millisecond or more apart so that no queue is ever full."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
        for index in range(int(datagrams)):
            target.sendto(index.to_bytes(4).ljust(1000), (address, PORT))
            time.sleep(0.001)


if __name__ == "__main__":
    roles = {"replay": replay, "serve": serve, "fetch": fetch, "hold": hold, "wait": wait, "delay": traced_delay}
    roles |= {"link": link, "number": number, "count": count}
    roles[sys.argv[1]](*sys.argv[2:])
