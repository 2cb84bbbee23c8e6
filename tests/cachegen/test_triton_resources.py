"""GPU kernels compile for sm_80 and sm_90, and take of a chip what is on record."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import cachegen

RECORD = Path(__file__).parent.parent / "golden" / "kernel_resources.json"
RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))


@cache
def compiled():
    """What the kernels take, compiled now, in a process that does not interpret them."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(cachegen.__file__).parent.parent)
    command = [sys.executable, RECORD.with_suffix(".py"), "--print"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_record_is_of_the_compiler_in_use():
    assert compiled()["triton"] == RECORDED["triton"]
    assert compiled()["kernels"].keys() == RECORDED["kernels"].keys()


@pytest.mark.parametrize("kernel", RECORDED["kernels"])
def test_a_kernel_takes_what_is_on_record(kernel):
    assert compiled()["kernels"][kernel] == RECORDED["kernels"][kernel]


def test_no_kernel_spills():
    assert [name for name, used in RECORDED["kernels"].items() if used["stack_bytes"]] == []


def test_only_the_stage_that_need_not_be_exact_rounds_a_product_and_a_sum_at_once():
    fused = {name for name, used in RECORDED["kernels"].items() if used["fused"]}

    assert {name.split("_")[0] for name in fused} == {"restore"}
