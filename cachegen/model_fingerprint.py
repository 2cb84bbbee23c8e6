"""Sixteen bytes that name a model: they change with its weights, its configuration and its dtype."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
import xxhash

from cachegen.chunking import MODEL_FINGERPRINT_BYTES

# Where a model was loaded from and which release saved it change nothing in its cache; its class and the dtype of its
# weights are hashed as they are, whether the configuration names them or not.
_NOT_IDENTITY = {"_name_or_path", "transformers_version", "architectures", "dtype"}


def fingerprint_of(network: Any) -> bytes:
    """Hash configuration, dtype and every weight, so that even one edited token's embedding makes another model."""
    config = {**_identity(network.config.to_dict()), "class": type(network).__name__}
    # sorted at every depth: a configuration that was saved and loaded lists the same things in another order
    text = json.dumps(config, sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=MODEL_FINGERPRINT_BYTES)
    for key, tensor in sorted(network.state_dict().items()):
        elements = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        digest.update(xxhash.xxh3_128_digest(elements.numpy()))
    return digest.digest()


def _identity(config: dict[str, Any]) -> dict[str, Any]:
    """What of a configuration, and of those within it, says which model it is."""
    return {
        str(key): _identity(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in _NOT_IDENTITY
    }
