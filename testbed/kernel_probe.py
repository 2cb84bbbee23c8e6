"""Find out what the running kernel can do to a link, by trying it where it harms nobody."""

import subprocess
from dataclasses import dataclass

# Each is tried on the loopback interface of a network namespace of its own, which ends with the command.
PROBES = {
    "htb": ("tc", "qdisc", "add", "dev", "lo", "root", "handle", "5:", "htb", "default", "1"),
    "bfifo": ("tc", "qdisc", "add", "dev", "lo", "root", "bfifo", "limit", "100000"),
    "tbf": ("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1gbit", "burst", "100kb", "limit", "100000"),
    "codel": ("tc", "qdisc", "add", "dev", "lo", "root", "codel"),
    "fq_codel": ("tc", "qdisc", "add", "dev", "lo", "root", "fq_codel"),
    "netem": ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"),
    "bridge": ("ip", "link", "add", "probe", "type", "bridge"),
}
TIMEOUT_S = 10


@dataclass(frozen=True)
class KernelSupport:
    """What the kernel has, and its own words about what it lacks."""

    has: frozenset[str]
    lacks: dict[str, str]

    @property
    def delay_backend(self) -> str:
        """``"netem"`` where the kernel can delay frames on a bridge itself, else ``"relay"``."""
        return "netem" if {"netem", "bridge"} <= self.has else "relay"


def probe_kernel() -> KernelSupport:
    """Try each feature in a scratch network namespace."""
    refusals = {}
    for feature, command in PROBES.items():
        done = subprocess.run(
            ["unshare", "--net", *command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            refusals[feature] = " ".join(done.stderr.split()) or f"{command[0]} ended with {done.returncode}"
    return KernelSupport(frozenset(PROBES) - refusals.keys(), refusals)
