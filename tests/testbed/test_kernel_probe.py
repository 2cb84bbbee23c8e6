"""Which delay backend follows from what the kernel has."""

import pytest

from testbed.kernel_probe import KernelSupport


@pytest.mark.parametrize(
    ("has", "backend"),
    [
        ({"htb", "bfifo", "netem", "bridge"}, "netem"),
        ({"htb", "bfifo", "netem"}, "relay"),
        ({"htb", "bfifo", "bridge"}, "relay"),
    ],
)
def test_netem_is_used_where_kernel_and_bridge_allow_it(has, backend):
    assert KernelSupport(frozenset(has), {}).delay_backend == backend
