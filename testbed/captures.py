"""Captures at both hosts of a run: started before the first frame that matters, ended and accounted for after the last.

Beside each host's frames, what that host is connected to is kept: a host whose only interfaces are its end of the
emulated link and its loopback cannot have sent a byte anywhere else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.errors import HostError
from testbed.network import EmulatedNetwork

STOP_TIMEOUT_S = 30.0


class Captures:
    """A capture process in each addressed host.

    Parameters
    ----------
    network : EmulatedNetwork
        Whose hosts are listened to.
    folder : Path
        Receives ``HOST.pcap``.
    """

    def __init__(self, network: EmulatedNetwork, folder: Path) -> None:
        self._hosts: dict[str, dict[str, Any]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for host in network.wiring.addresses:
            described = network.describe_host(host)
            path = folder / f"{host}.pcap"
            [interface] = (name for name in described["interfaces"] if name != "lo")
            process = network.popen(
                host,
                [sys.executable, "-P", "-m", "testbed.capture", interface, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
            self._hosts[host] = {"file": path.name, **described}
            self._processes[host] = process
        for host, process in self._processes.items():
            assert process.stdout is not None  # it was opened as a pipe
            if not process.stdout.readline():
                raise HostError(f"capture at {host}: ended with status {process.wait()} before it began")

    def stop(self) -> dict[str, Any]:
        """End the captures; return for each host its file, what was written and missed, and its interfaces."""
        for host, process in self._processes.items():
            account, _ = process.communicate(timeout=STOP_TIMEOUT_S)
            if process.returncode:
                raise HostError(f"capture at {host}: ended with status {process.returncode}")
            self._hosts[host] |= json.loads(account)
        return self._hosts
