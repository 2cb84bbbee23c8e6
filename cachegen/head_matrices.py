"""Products with a matrix for each head, where channels are those of head after head."""

from __future__ import annotations

import torch


def times_heads(x: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Rows ``(n, heads * head_dim)``, each head's part times its matrix ``(heads, head_dim, head_dim)``."""
    parts = x.reshape(len(x), len(matrices), -1).transpose(0, 1)
    return torch.bmm(parts, matrices).transpose(0, 1).reshape(x.shape)


def diagonal_blocks(matrix: torch.Tensor, dim: int) -> torch.Tensor:
    """Square blocks on the diagonal, ``(heads, dim, dim)``."""
    return torch.stack([matrix[i : i + dim, i : i + dim] for i in range(0, len(matrix), dim)])
