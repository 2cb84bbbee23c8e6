"""How a CPU kernel is compiled: on first call, cached on disk, and without the interpreter's lock."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with Numba and keep its type, which Numba's own decorator loses."""
    return cast("Callable[P, R]", njit(cache=True, nogil=True)(function))
