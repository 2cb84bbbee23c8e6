"""The topologies a run can be asked for, by name."""

from collections.abc import Callable
from typing import Any

from testbed.topologies import single_link
from testbed.topologies.wiring import Wiring

# name -> function that adds nodes and links to a Mininet network and says what is what
TOPOLOGIES: dict[str, Callable[[Any], Wiring]] = {
    "single_link": single_link.build,
}
