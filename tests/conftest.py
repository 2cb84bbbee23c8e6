"""Settings of the whole suite; its place here lets tests import ``checks``."""

import os
from pathlib import Path

import pytest
import torch

# Triton's decorators choose when they are imported: without a GPU they must make kernels that NumPy interprets.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

_IN_REAL_TIME = Path(__file__).parent / "integration"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the machine for themselves."""
    for item in items:
        if _IN_REAL_TIME in item.path.parents:
            item.add_marker(pytest.mark.alone)
