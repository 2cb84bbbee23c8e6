"""What a model knows of each token of its vocabulary before it has seen any context."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import torch

from cachegen.model import LanguageModel
from cachegen.token_moments import TokenFeatures

# Dimensions of either part that are looked at; of a wider one, those of the largest energy over the vocabulary.
MAX_DIMENSIONS = 768
_BLOCK_TOKENS = 4096
_SEED = 0

_LOG = logging.getLogger("cachegen.calibration")


@torch.inference_mode()
def token_features(model: LanguageModel) -> TokenFeatures | None:
    """A token's embedding, and what the model's first layer makes of it where it stands alone, rows of one length each.

    What leaves the first layer says more of the later layers' keys and values than the embedding. None where the
    embedding is no plain table, the layers are in no list, or the model does not run on single tokens.
    """
    training = model.network.training
    # what drops out at random would be another profile each time
    model.network.eval()
    try:
        return _features(model)
    finally:
        model.network.train(training)


def _features(model: LanguageModel) -> TokenFeatures | None:
    embedding, first_layer = _embedding(model.network), _first_layer(model)
    if embedding is None or first_layer is None:
        return None
    blocks = _blocks(len(embedding))
    behind = []
    for block in blocks:
        if (rows := _behind(model, first_layer, block)) is None:
            return None
        behind.append(_unit_rows(rows))
    of_embedding = _table([_unit_rows(embedding[block]) for block in blocks])
    return TokenFeatures(torch.cat([of_embedding, _table(behind)], dim=1), of_embedding)


def _embedding(network: Any) -> torch.Tensor | None:
    try:
        table = network.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):
        return None
    plain = isinstance(table, torch.Tensor) and table.ndim == 2 and table.is_floating_point()
    return table.detach() if plain else None


def _first_layer(model: LanguageModel) -> torch.nn.Module | None:
    """First entry of the list of as many modules as the model has layers; of several, of the one that a token meets."""
    for module in model.network.modules():
        of_layers = isinstance(module, torch.nn.ModuleList) and len(module) == model.shape.num_layers
        if of_layers and _behind(model, module[0], slice(0, 1)) is not None:
            layer: torch.nn.Module = module[0]
            return layer
    return None


class _Seen(Exception):  # noqa: N818  # no error: it ends a run whose later layers nobody needs
    """Carries what left the first layer."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__()
        self.hidden = hidden


def _behind(model: LanguageModel, layer: torch.nn.Module, tokens: slice) -> torch.Tensor | None:
    """What leaves a layer for each of some tokens that stands alone, ``(tokens, dimensions)``.

    None where they miss it, and where the model refuses them: it codes without a codebook as well.
    """

    def stop(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        raise _Seen(output if isinstance(output, torch.Tensor) else output[0])

    ids = torch.arange(tokens.start, tokens.stop, device=model.device)[:, None]
    masked = "attention_mask" in inspect.signature(model.network.forward).parameters
    options = {"attention_mask": torch.ones_like(ids)} if masked else {}
    handle = layer.register_forward_hook(stop)
    try:
        model.network(ids, use_cache=False, **options)
    except _Seen as seen:
        return seen.hidden[:, -1]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a model's own code raises for tokens that it does not take alone
        _LOG.warning("%s: no codebook, the model does not run on single tokens: %r", model.name, error)
        return None
    finally:
        handle.remove()
    return None


def _blocks(vocabulary: int) -> list[slice]:
    return [slice(first, min(first + _BLOCK_TOKENS, vocabulary)) for first in range(0, vocabulary, _BLOCK_TOKENS)]


def _unit_rows(rows: torch.Tensor) -> torch.Tensor:
    """Rows of length 1, float16 in the host's memory; those that hold what is no number say nothing."""
    found = rows.float().cpu()
    sound = torch.where(found.isfinite().all(dim=1, keepdim=True), found, 0.0)
    return torch.nn.functional.normalize(sound, dim=1).half()


def _table(blocks: list[torch.Tensor]) -> torch.Tensor:
    """In as few dimensions as are looked at, with entries of about 1; ``(tokens, dimensions)`` float16."""
    if blocks[0].shape[1] > MAX_DIMENSIONS:
        kept = _largest_directions(blocks)
        blocks = [(rows.float() @ kept).half() for rows in blocks]
    table: torch.Tensor = torch.cat(blocks) * blocks[0].shape[1] ** 0.5
    return table


def _largest_directions(blocks: list[torch.Tensor]) -> torch.Tensor:
    """Orthonormal columns that keep most of the rows' energy, ``(dimensions, MAX_DIMENSIONS)``."""
    size = blocks[0].shape[1]
    products = torch.zeros(size, size, dtype=torch.float32)
    for rows in blocks:
        products.addmm_(rows.float().T, rows.float())
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed, which sets the generators of every GPU too
        torch.default_generator.manual_seed(_SEED)
        kept: torch.Tensor = torch.svd_lowrank(products, q=MAX_DIMENSIONS)[0]
    return kept
