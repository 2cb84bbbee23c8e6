"""Where the tests of GPU kernels run: on a GPU if there is one, else interpreted, and then faster than by default."""

import numpy as np
import pytest
import torch
import triton.runtime.interpreter as interpreter

from cachegen.kernels import base, get_backend
from cachegen.kernels.triton_jit import INTERPRETED

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
MARK = [] if INTERPRETED else [pytest.mark.gpu]


@pytest.fixture
def many_lanes(monkeypatch):
    """So many lanes for so few symbols that a few blocks show what thousands would."""
    monkeypatch.setattr(base, "LANE_SYMBOLS", 3)


def gpu_backend():
    """The backend whose kernels are tested."""
    return get_backend("triton")


def put(array):
    """A NumPy array as a contiguous tensor on the device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def _call(function, *args, **kwargs):
    """Call a device function.

    The interpreter patches the language anew at each call, at many times the cost of the call; once for each module is
    enough, since its patches stay.
    """
    module = id(function.fn.__globals__)
    if module not in _patched:
        _patched.add(module)
        interpreter._patch_lang(function.fn)
    return function.rewrite()(*args, **kwargs)


_patched = set()
if INTERPRETED:
    interpreter.InterpretedFunction.__call__ = _call
    # computes whether each sum overflows, and then does nothing with it
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
