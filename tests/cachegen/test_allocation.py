"""An honest container whose tensor does not fit: one error that says how many bytes were wanted, under a real limit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checks import IDENTITY
from safetensors.torch import save_file

from cachegen import Encoding, MemoryLimitError, encode_chunk
from cachegen.allocation import memory_for

ROOT = Path(__file__).parents[2]
SHAPE = (4, 2, 1024, 64, 64)
TENSOR_BYTES = 2 * 4 * 2 * 1024 * 64 * 64
# Less than the tensor, more than a container of 3 bits an element.
ROOM_BYTES = 40 << 20
READER = """
import contextlib, io, json, resource, sys
from pathlib import Path
from cachegen import decode_chunk, warm_up
from cachegen.cli import main

folder, room = Path(sys.argv[1]), int(sys.argv[2])
warm_up()

def command(*arguments):
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(shown):
        status = main(arguments)
    return status, shown.getvalue()

def library(path):
    try:
        return decode_chunk(path.read_bytes(), None)
    except Exception as error:
        return type(error).__name__, str(error)

command("inspect", str(folder / "small.kvc"))
command("decode", str(folder / "small.kvc"), "-o", str(folder / "small"))
library(folder / "small.kvc")

def bound(room):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))

bound(room)
found = {}
for name in ("quant3", "raw"):
    path = folder / f"{name}.kvc"
    found[name] = {
        "inspect": command("inspect", str(path)), "decode": command("decode", str(path), "-o", str(folder / "kv")),
        "library": library(path) if name == "quant3" else None,
    }
kv = str(folder / "kv.safetensors")
found["encode"] = command("encode", "--kv", kv, "--encoding", "quant3", "-o", str(folder / "new.kvc"))
# less than the file, which is mapped
bound(room // 4)
found["map"] = command("encode", "--kv", kv, "--encoding", "quant3", "-o", str(folder / "new.kvc"))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What commands and library say of containers of a tensor that does not fit, the one of ``raw`` not even itself."""
    folder = tmp_path_factory.mktemp("large")
    kv = torch.ones(SHAPE, dtype=torch.bfloat16)
    for name in ("quant3", "raw"):
        (folder / f"{name}.kvc").write_bytes(encode_chunk(kv, Encoding(name), IDENTITY, None))
    save_file({"kv": kv[:, :, :256].contiguous()}, folder / "kv.safetensors")
    (folder / "small.kvc").write_bytes(encode_chunk(kv[:, :, :9], Encoding("quant3"), IDENTITY, None))
    command = [sys.executable, "-c", READER, str(folder), str(ROOM_BYTES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_encoding_says_what_there_is_no_memory_for(found):
    for step, what in (("encode", "encoding 256 tokens, 16,777,216 bytes"), ("map", "kv.safetensors, 16,777,")):
        status, shown = found[step]
        assert status == 2
        assert "no memory for " in shown
        assert what in shown


def test_decoding_says_how_many_bytes_were_wanted(found):
    wanted = f"no memory for the decoded tensor of 1024 tokens, {TENSOR_BYTES:,} bytes"
    kind, text = found["quant3"]["library"]
    assert kind == "MemoryLimitError"
    assert wanted in text
    status, shown = found["quant3"]["decode"]
    assert status == 2
    assert f"quant3.kvc: {wanted}" in shown


def test_inspecting_calls_no_container_damaged_for_want_of_memory(found):
    status, shown = found["quant3"]["inspect"]
    assert status == 0
    assert "skipped  decode: no memory for the decoded tensor" in shown


def test_a_file_that_does_not_fit_is_named(found):
    for command in ("inspect", "decode"):
        status, shown = found["raw"][command]
        assert status == 2
        assert "raw.kvc, 67," in shown
        assert "no memory for " in shown


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried ..."),
    ],
)
def test_every_library_s_want_of_memory_is_the_same_error(error):
    with pytest.raises(MemoryLimitError, match="no memory for a test, 1,234 bytes"), memory_for("a test", 1234):
        raise error


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), torch.OutOfMemoryError("CUDA out of memory")])
def test_what_is_no_want_of_the_machines_memory_passes(error):
    with pytest.raises(type(error), match=str(error)), memory_for("a test", 1234):
        raise error
