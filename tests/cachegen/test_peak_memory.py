"""The account of a process's peak memory, against work whose peak is known."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cachegen.benchmark.peak_memory import MALLOC_SETTINGS

MIB = 1 << 20
PROGRAM = """
import json, numpy, torch
from cachegen.benchmark.peak_memory import extra_peak_bytes

kept = []

def filled(library, mib):
    return library.ones(mib << 20, dtype=library.uint8)

def nothing(): pass

def together(): a, b = filled(torch, 24), filled(numpy, 16)

def one_by_one(): len(filled(torch, 24)); len(filled(numpy, 16))

def keeping(): kept or kept.append(filled(numpy, 12))

def peak_of(use):
    def work():
        output = filled(torch, 8)
        use()
        return output.nbytes
    return extra_peak_bytes(lambda: filled(torch, 16), work)

print(json.dumps({use.__name__: peak_of(use) for use in (nothing, together, one_by_one, keeping)}))
"""


def test_temporaries_of_both_libraries_count_and_so_does_scratch_that_is_kept():
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, **MALLOC_SETTINGS, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    found = {name: count / MIB for name, count in json.loads(done.stdout).items()}
    assert found == pytest.approx({"nothing": 0, "together": 40, "one_by_one": 24, "keeping": 12}, abs=1)
