"""Compute backends by name; the only place that picks one."""

from __future__ import annotations

from functools import cache

from cachegen.errors import InvalidInputError, UnknownNameError
from cachegen.kernels.base import Backend
from cachegen.kernels.range_coder import RangeCoder

BACKENDS = ("reference", "numba", "triton")


@cache
def get_backend(name: str) -> Backend:
    """Backend of a name; UnknownNameError lists the known ones, InvalidInputError says what one of them lacks here.

    A backend's compiler is imported on first use, so that those who need none of it do not wait for it.
    """
    if name == "reference":
        from cachegen.kernels.reference import ReferenceBackend

        return ReferenceBackend()
    if name == "numba":
        from cachegen.kernels.numba_backend import NumbaBackend

        return NumbaBackend()
    if name == "triton":
        try:
            from cachegen.kernels.triton_backend import TritonBackend
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                f"backend 'triton' needs the package {error.name}: install cachegen[gpu]"
            ) from error
        return TritonBackend()
    raise UnknownNameError(f"unknown backend {name!r}; known: {', '.join(BACKENDS)}")


def get_range_coder(name: str) -> RangeCoder:
    """The published code's coder of the backend ``reference`` or ``numba``, whose compiler is imported on first use."""
    if name == "reference":
        from cachegen.kernels import range_coder

        return range_coder
    assert name == "numba"
    from cachegen.kernels import numba_range

    return numba_range
