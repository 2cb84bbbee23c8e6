"""How long a sequence of a model may get before its positions mean something else."""

from __future__ import annotations

from typing import Any


def first_changing_token(network: Any) -> int:
    """Position from which on the rotation of all keys depends on the sequence's length; 0 if it never does.

    LongRoPE has one set of frequencies for sequences up to a length and another beyond it, dynamic scaling a new one
    for each length. So keys that a shorter sequence left in a cache are wrong in a longer one.
    """
    limits = []
    for module in network.modules():
        kinds = getattr(module, "rope_type", None)
        for layer_type, kind in kinds.items() if isinstance(kinds, dict) else [(None, kinds)]:
            if kind == "longrope":
                parameters = module.config.rope_parameters
                own = parameters if layer_type is None else parameters[layer_type]
                limits.append(int(own["original_max_position_embeddings"]))
            elif kind == "dynamic":
                limits.append(int(module.original_max_seq_len))
    return min(limits, default=0)


def longest_sequence(network: Any) -> int | None:
    """Tokens that one cache of the model may hold; None where nothing in its configuration limits them."""
    config = network.config.get_text_config(decoder=True)
    stated = [getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len")]
    return min((int(limit) for limit in (*stated, first_changing_token(network)) if limit), default=None)
