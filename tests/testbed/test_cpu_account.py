"""Shares of the processors, and whether a run was starved of them."""

import os
import subprocess
import sys

import pytest

from testbed.cpu_account import CpuReading, CpuUse, cpu_use, parse_pressure_s, parse_process, read_cpu
from testbed.fidelity import FidelityLimits, judge_cpu

PRESSURE = (
    "some avg10=99.15 avg60=98.88 avg300=98.96 total=6461210226\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
)


def test_shares_are_of_all_processors_and_others_took_what_the_run_did_not():
    before = CpuReading(total_s=100, working_s=50, idle_s=40, steal_s=1, own_s=5, waiting_s=10)
    after = CpuReading(total_s=120, working_s=65, idle_s=44, steal_s=2, own_s=8, waiting_s=15)

    assert cpu_use(before, after, 10) == CpuUse(foreign=0.6, own=0.15, idle=0.2, steal=0.05, pressure=0.5)


def test_a_kernel_without_pressure_gives_none():
    reading = CpuReading(100, 50, 40, 1, 5, None)

    assert cpu_use(reading, reading, 10).pressure is None


def test_the_kernels_files_are_read():
    assert parse_pressure_s(PRESSURE) == 6461.210226
    line = "12 (odd ) name) S 1 12 77 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 9 1 1"
    assert parse_process(line) == (77, 300 / os.sysconf("SC_CLK_TCK"))


def test_work_of_a_named_session_is_the_runs_own():
    loop = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(1)\ninput()"
    with subprocess.Popen([sys.executable, "-c", loop], stdin=-1, stdout=-1, start_new_session=True) as process:
        process.stdout.readline()
        ours, others = read_cpu([process.pid]), read_cpu([])
        process.communicate()

    assert ours.own_s - others.own_s >= 0.25
    assert ours.total_s > ours.working_s > 0


@pytest.mark.parametrize(
    ("use", "starved"),
    [
        (CpuUse(foreign=0.0, own=0.9, idle=0.1, steal=0.0, pressure=0.9), False),
        (CpuUse(foreign=0.5, own=0.2, idle=0.3, steal=0.0, pressure=0.05), False),
        (CpuUse(foreign=0.5, own=0.4, idle=0.0, steal=0.0, pressure=0.9), True),
        (CpuUse(foreign=0.5, own=0.5, idle=0.0, steal=0.0, pressure=None), True),
        (CpuUse(foreign=0.5, own=0.3, idle=0.2, steal=0.0, pressure=None), False),
        (CpuUse(foreign=0.0, own=0.5, idle=0.3, steal=0.2, pressure=0.0), True),
    ],
)
def test_a_run_is_starved_if_others_work_while_somebody_waits(use, starved):
    reasons = judge_cpu(use, FidelityLimits())

    assert bool(reasons) == starved
    assert all("the processors were starved" in reason for reason in reasons)
