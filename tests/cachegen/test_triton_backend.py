"""The codecs on the GPU backend: the same bytes, the same tensors; and a clear word where it cannot run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checks import make_chunk, profile_of, same_bits
from triton_device import MARK, many_lanes  # noqa: F401 - a fixture

from cachegen.codecs.cachegen import CachegenCodec
from cachegen.codecs.transform import TransformCodec
from cachegen.kv import layout_of

pytestmark = [*MARK, pytest.mark.usefixtures("many_lanes")]
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("codec", [CachegenCodec, TransformCodec])
def test_a_codec_writes_and_reads_the_same_on_both_backends(codec):
    kv = make_chunk(layers=1, tokens=12, heads=2, dim=5, dtype=torch.float16)
    tables, level, first_token = profile_of(kv).tables, 2, 0
    cpu, gpu = codec("numba"), codec("triton")
    sections = cpu.encode(kv, level, tables, first_token)

    assert gpu.encode(kv, level, tables, first_token) == sections
    views = {key: memoryview(body) for key, body in sections.items()}
    decoded = [each.decode(views, layout_of(kv), level, tables, first_token) for each in (cpu, gpu)]
    assert same_bits(*decoded)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("import sys; sys.modules['triton'] = None", "needs the package triton"),
        ("import torch; torch.cuda.is_available = lambda: False", "needs a CUDA device"),
    ],
)
def test_a_machine_that_cannot_run_it_says_what_is_missing(before, reason):
    program = f"{before}\nfrom cachegen.kernels import get_backend\nget_backend('triton')"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "InvalidInputError" in done.stderr
    assert reason in done.stderr
