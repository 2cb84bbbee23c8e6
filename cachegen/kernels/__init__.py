"""Compute backends by name; the only place that picks one."""

from __future__ import annotations

from functools import cache

from cachegen.errors import UnknownNameError
from cachegen.kernels.base import Backend

BACKENDS = ("reference", "numba")


@cache
def get_backend(name: str) -> Backend:
    """Backend of a name; UnknownNameError lists the known ones.

    A backend's compiler is imported on first use, so that those who need none of it do not wait for it.
    """
    if name == "reference":
        from cachegen.kernels.reference import ReferenceBackend

        return ReferenceBackend()
    if name == "numba":
        from cachegen.kernels.numba_backend import NumbaBackend

        return NumbaBackend()
    raise UnknownNameError(f"unknown backend {name!r}; known: {', '.join(BACKENDS)}")
