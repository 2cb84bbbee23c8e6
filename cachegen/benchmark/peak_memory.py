"""How much memory decoding one chunk takes beyond its output, measured by a process that does nothing else.

The kernel's account of the process is taken rather than an allocator's: NumPy, torch, its matrix library and compiled
kernels each allocate in their own way, and only the kernel sees them all. A fresh process (``python -m
cachegen.benchmark.peak_memory``) decodes

1. a chunk of a few tokens in the same encoding: libraries are loaded, kernels compiled, and whatever a codec keeps for
   its profile is there; anonymous memory then is the baseline;
2. the chunk itself, and drops the result: code that only large chunks run is paged in, and scratch memory that is
   not given back stays above the baseline, so it counts;
3. the chunk again, with the kernel's high-water mark (``VmHWM``) set back just before.

The peak is that mark without file-backed pages, less the baseline, less the output. glibc's thresholds are fixed in
that process, so that freed memory of 128 KiB and more is given back at once and none of it hides in the heap. The
kernel counts pages in batches: figures are good to half a MiB.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cachegen.pipeline import decode_chunk
from cachegen.profile import Profile, load_profile

_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_HIGH_WATER = "5"
MALLOC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}


class Peak(NamedTuple):
    """A peak, or None and the reason why it is not known."""

    num_bytes: int | None
    reason: str = ""


def decode_peak(chunk: Path, few_tokens: Path, profile: Path) -> Peak:
    """Peak extra memory of decoding a container on the CPU.

    Parameters
    ----------
    chunk, few_tokens : Path
        Files of the container and of a short one in the same encoding.
    profile : Path
        File of their profile.
    """
    if not os.access(_CLEAR_REFS, os.W_OK):
        return Peak(None, f"the kernel keeps no account of it: {_CLEAR_REFS} cannot be written")
    command = [sys.executable, "-P", "-m", "cachegen.benchmark.peak_memory", str(chunk), str(few_tokens), str(profile)]
    # this very library, wherever the process was started
    environment = {**os.environ, **MALLOC_SETTINGS, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return Peak(None, f"the process that decodes ended with {done.returncode}: {said[-1] if said else 'no word'}")
    return Peak(int(done.stdout))


def extra_peak_bytes(prepare: Callable[[], object], work: Callable[[], int]) -> int:
    """Peak memory of some work in this process beyond its output, as described above.

    Parameters
    ----------
    prepare : callable
        Brings about all that does not count.
    work : callable
        Drops its output and returns that output's bytes.
    """
    prepare()
    baseline = _anonymous_bytes("VmRSS")
    output = work()
    _give_back()
    _CLEAR_REFS.write_text(_RESET_HIGH_WATER)
    work()
    return max(0, _anonymous_bytes("VmHWM") - baseline - output)


def _decoded_bytes(data: bytes, profile: Profile) -> int:
    return decode_chunk(data, profile).kv.nbytes


def _anonymous_bytes(total: str) -> int:
    """Resident memory now (``VmRSS``) or at its highest (``VmHWM``), without pages of files."""
    _give_back()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kilobytes = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest
    }
    return 1024 * (kilobytes[total] - kilobytes["RssFile"] - kilobytes["RssShmem"])


def _give_back() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    container, short = (Path(argument).read_bytes() for argument in sys.argv[1:3])
    used = load_profile(sys.argv[3])
    found = extra_peak_bytes(partial(_decoded_bytes, short, used), partial(_decoded_bytes, container, used))
    sys.stdout.write(f"{found}\n")
