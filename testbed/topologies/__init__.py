"""The topologies a run can be asked for, by name."""

from testbed.topologies.dumbbell import Dumbbell
from testbed.topologies.edge_origin import EdgeOrigin
from testbed.topologies.single_link import SingleLink
from testbed.topologies.wiring import Topology

# Adding one: a module here, and a line.
TOPOLOGIES: dict[str, Topology] = {
    "single_link": SingleLink(),
    "dumbbell": Dumbbell(),
    "edge_origin": EdgeOrigin(),
}
