"""Keep a fast link affordable: fewer and larger frames for the relay, and a processor that does nothing before it.

What the relay sends, the kernel would carry on with at once, in the relay's own time: through the receiver's TCP, and
for an acknowledgement through the sender's, its next segments and the shaper. Frames that are due then leave late by
milliseconds, while another processor idles. So the relay keeps to one processor, and the others receive for the hosts.
"""

import os
from collections.abc import Iterable

from testbed.errors import LinkError
from testbed.hosts import Hosts

# So long a segment waits for others to be joined with (GRO), which adds to its delay. .1 ms saves the relay nineteen
# frames of twenty at 500 Mbit/s, .5 ms two of three at 50: the processor time that they take, a host's decoding misses.
_LEAST_WAIT_NS, _MOST_WAIT_NS = 100_000, 500_000
_WAIT_OF_DELAY = 0.02
_NS_PER_MS = 1_000_000
# sysfs shows the interfaces of the namespace that it was mounted in; this mount is gone when the command ends
_WRITE_AND_READ = 'mount -t sysfs sysfs /tmp && cd "/tmp/class/net/$1" && echo "$3" > "$2" && cat "$2"'


def relay_processor() -> int | None:
    """Return the processor that the relay keeps to; None where there is but one."""
    processors = os.sched_getaffinity(0)
    return max(processors) if len(processors) > 1 else None


def wait_for_joining(hosts: Hosts, host: str, interface: str, delay_ms: float) -> float:
    """Let TCP segments wait for others at an interface before their delay; return how long (ms), 0 if not at all."""
    wait_ns = join_wait_ns(delay_ms)
    is_set = _set(hosts, host, interface, "gro_flush_timeout", str(wait_ns)) == str(wait_ns)
    return wait_ns / _NS_PER_MS if is_set else 0.0


def join_wait_ns(delay_ms: float) -> int:
    """How long a segment may wait before a delay of so many milliseconds: a fiftieth of that, within limits."""
    return min(max(int(_WAIT_OF_DELAY * delay_ms * _NS_PER_MS), _LEAST_WAIT_NS), _MOST_WAIT_NS)


def receive_beside_the_relay(hosts: Hosts, host: str, interface: str) -> bool:
    """Let the other processors do what arrives at an interface (RPS); return whether they do."""
    kept = relay_processor()
    if kept is None:
        return False
    mask = processor_mask(os.sched_getaffinity(0) - {kept})
    found = _set(hosts, host, interface, "queues/rx-0/rps_cpus", mask)
    return found is not None and int(found.replace(",", ""), 16) == int(mask.replace(",", ""), 16)


def processor_mask(processors: Iterable[int]) -> str:
    """Return a set of processors as the kernel writes it: hexadecimal words of 32, the highest first."""
    bits = sum(1 << number for number in processors)
    words: list[str] = []
    while bits or not words:
        words.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(words))


def _set(hosts: Hosts, host: str, interface: str, setting: str, value: str) -> str | None:
    """Write a setting and read it back; None where sysfs cannot be mounted or written, as in most containers."""
    try:
        return hosts.run(
            host, ["unshare", "--mount", "sh", "-c", _WRITE_AND_READ, "sh", interface, setting, value]
        ).strip()
    except LinkError:
        return None
