"""Delay, jitter and loss by the kernel's netem."""

import json
from dataclasses import replace
from typing import Any

from testbed.bridging import bridge_commands
from testbed.delay import WAY_NAMES, RunCommand, Ways
from testbed.errors import LinkError
from testbed.link_settings import Way

BRIDGE = "wire-br"
LIMIT_PACKETS = 100_000  # more than any delay here can hold; a full netem would be a hidden queue limit
TOLERANCE_MS = 0.01
LOSS_TOLERANCE = 1e-6


class NetemDelay:
    """A bridge between the two interfaces with netem on the outgoing side of both.

    Parameters
    ----------
    run : callable
        Runs a command in the node.
    interfaces : tuple of str
        Towards the sender, towards the receiver.
    ways : tuple of Way
        Down and up.
    """

    name = "netem"
    priority = "kernel"

    def __init__(self, run: RunCommand, interfaces: tuple[str, str], ways: Ways) -> None:
        self._run = run
        # frames to the receiver leave by the receiver's side
        self._outgoing = dict(zip(WAY_NAMES, reversed(interfaces), strict=True))
        self._ways = dict(zip(WAY_NAMES, ways, strict=True))
        for command in bridge_commands(BRIDGE, interfaces):
            run(command)
        for name, way in self._ways.items():
            run(netem_command("add", self._outgoing[name], way))
            check_netem(self._qdisc(name), self._outgoing[name], way)

    def set_ms(self, down_ms: float, up_ms: float) -> None:
        """Change the delays of frames that arrive from now on."""
        for name, delay_ms in zip(WAY_NAMES, (down_ms, up_ms), strict=True):
            self._ways[name] = replace(self._ways[name], delay_ms=delay_ms)
            self._run(netem_command("change", self._outgoing[name], self._ways[name]))

    def report(self) -> dict[str, Any]:
        """Return frames passed, lost and dropped for each way.

        netem counts the frames it loses on purpose and those it has no room for as one; its room is larger than any
        delay here can fill.
        """
        stats = {name: self._qdisc(name) for name in WAY_NAMES}
        dropped = {name: int(qdisc["drops"]) for name, qdisc in stats.items()}
        on_purpose = {name: dropped[name] if self._ways[name].loss else 0 for name in WAY_NAMES}
        return {
            "passed": {name: int(qdisc["packets"]) for name, qdisc in stats.items()},
            "lost": on_purpose,
            "drops": {name: dropped[name] - on_purpose[name] for name in WAY_NAMES},
        }

    def close(self) -> None:
        """Do nothing: netem ends with its interface."""

    def _qdisc(self, name: str) -> dict[str, Any]:
        shown = json.loads(self._run(["tc", "-j", "-s", "qdisc", "show", "dev", self._outgoing[name], "root"]))
        return dict(shown[0])


def netem_command(action: str, interface: str, way: Way) -> list[str]:
    """Return the tc command that adds or changes netem on an interface."""
    command = ["tc", "qdisc", action, "dev", interface, "root", "netem", "limit", str(LIMIT_PACKETS)]
    # whole microseconds: tc would cut a longer fraction without a word
    command += ["delay", f"{round(way.delay_ms * 1e3)}us"]
    if way.jitter_ms:
        # with any rate at all netem keeps the order of frames, as a cable does; this one takes a frame 0.1 us
        command += [f"{round(way.jitter_ms * 1e3)}us", "rate", "100gbit"]
    if way.loss:
        begins, ends = (f"{100 * chance:.6f}%" for chance in way.loss_chances())
        command += ["loss", "gemodel", begins, ends, "100%", "0%"]
    return command


def check_netem(qdisc: dict[str, Any], interface: str, way: Way) -> None:
    """Raise LinkError if a netem, as ``tc -j qdisc show`` describes it, is not what was asked for."""
    if qdisc.get("kind") != "netem":
        raise LinkError(f"{interface}: asked for netem, read back {qdisc.get('kind')!r}")
    options = qdisc.get("options", {})
    # without a delay tc leaves the whole entry out
    delay = options.get("delay", {})
    for what, wanted_ms in (("delay", way.delay_ms), ("jitter", way.jitter_ms)):
        found_ms = float(delay.get(what, 0.0)) * 1e3
        if abs(found_ms - wanted_ms) > TOLERANCE_MS:
            raise LinkError(f"{interface}: asked netem for a {what} of {wanted_ms} ms, read back {found_ms} ms")
    chances = options.get("loss-gemodel", {})
    for key, wanted in zip(("p", "r"), way.loss_chances() if way.loss else (0.0, 0.0), strict=True):
        found = float(chances.get(key, 0.0))
        if abs(found - wanted) > LOSS_TOLERANCE:
            raise LinkError(f"{interface}: asked netem for a loss chance {key} of {wanted:.6f}, read back {found:.6f}")
