"""Settings of the whole suite; its place here lets tests import ``checks``."""

import os

import torch

# Triton's decorators choose when they are imported: without a GPU they must make kernels that NumPy interprets.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
