"""The relay process as its owner sees it."""

import subprocess
import sys

import pytest

from testbed.errors import LinkError
from testbed.link_settings import Way
from testbed.relay_delay import RelayDelay


def test_relay_that_ends_leaves_its_last_words_in_the_error():
    def start(_argv, **kwargs):
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit('no such interface')"], **kwargs)

    with pytest.raises(LinkError, match="the delay relay has ended: no such interface"):
        RelayDelay(start, ("wire-eth0", "wire-eth1"), (Way(10), Way(10)))
