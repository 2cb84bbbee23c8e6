"""What errors in keys and values cost a model's predictions: Fisher information of its cache, from gradients.

To second order, the KL divergence that an error causes is half its square in the metric of the Fisher information,
which is the second moment of the gradients of the log-probabilities of what the model itself would predict.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.rotary import Rotary
from cachegen.codecs.sink_tokens import find_sinks
from cachegen.codecs.token_steps import DISTANCE_POWER
from cachegen.codecs.transform import SINK_TOKENS
from cachegen.kv_buffer import dynamic_cache
from cachegen.model import LanguageModel

# A context is cut at every multiple; what is before gets the gradients of what is predicted behind.
SPLIT_TOKENS = 512
# The mean over a layer's keys, or values, weighs as much as so many tokens with gradients: a few say nothing of many
# directions, which would be taken to be harmless.
PRIOR_TOKENS = 64
# Tokens predicted behind a split; a graph of their activations is what takes memory.
CONTINUATION_TOKENS = 128

F32 = npt.NDArray[np.float32]
_LOG = logging.getLogger("cachegen.calibration")


class FisherInformation:
    """Adds up the Fisher information of keys and values over contexts, a block for each head.

    Tokens count as much as the noise that their distance to the split lets them have (``DISTANCE_POWER``). Sinks do not
    count: few as they are, their steps are set apart.

    Parameters
    ----------
    model : LanguageModel
        Left as it is, dropout off. Where it gives no gradients, a warning is logged and there is no information.
    rotary : Rotary
        How its keys turn.
    """

    def __init__(self, model: LanguageModel, rotary: Rotary) -> None:
        self._model, self._rotary = model, rotary
        shape = model.shape
        self._sharing_layers = model.new_cache(1).sharing_layers
        self._random = torch.Generator("cpu").manual_seed(0)
        size = (shape.num_layers, 2, shape.num_kv_heads, shape.head_dim, shape.head_dim)
        self._sums = torch.zeros(size, dtype=torch.float32, device="cpu")
        self._num_tokens = 0
        self._fails = False

    def add(self, kv: torch.Tensor, token_ids: Sequence[int]) -> None:
        """Count a context ``(num_layers, 2, tokens, kv_heads, head_dim)`` of these tokens, from its start."""
        step = min(SPLIT_TOKENS, max(1, len(token_ids) // 2))
        for split in range(step, len(token_ids), step):
            if self._fails:
                return
            try:
                with _frozen(self._model):
                    gradients = self._gradients(kv[:, :, :split], token_ids[split : split + CONTINUATION_TOKENS])
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever a model's own code raises where it makes no graph
                _LOG.warning("%s: no gradients of the KV cache: %r", self._model.name, error)
                self._fails = True
                return
            if bool(torch.isfinite(gradients).all()):
                self._count(gradients, find_sinks(kv[:, 1, :split]).cpu())
            else:
                _LOG.warning("%s: gradients that are not finite are left out", self._model.name)

    def blocks(self) -> F32 | None:
        """Information of each head's un-rotated keys and of its values, ``(layers, 2, kv_heads, head_dim, head_dim)``.

        In nats a squared unit, up to a factor common to all. None where there is none.
        """
        if self._fails or not bool(self._sums.any()):
            _LOG.warning("%s: nothing is known of what errors in its KV cache cost: all count alike", self._model.name)
            return None
        usual = torch.diagonal(self._sums, dim1=-2, dim2=-1).mean(dim=(2, 3)) * (PRIOR_TOKENS / self._num_tokens)
        blocks: F32 = (
            self._sums
            + usual[:, :, None, None, None] * torch.eye(self._sums.shape[-1], dtype=torch.float32, device="cpu")
        ).numpy()
        return blocks

    def _gradients(self, kv: torch.Tensor, behind: Sequence[int]) -> torch.Tensor:
        """Of the log-probability of a sample of what is predicted, as ``kv`` but ``(..., kv_heads, tokens, ...)``."""
        # what a caller in inference mode made takes part in no graph: leaves are copies
        with torch.inference_mode(False), torch.enable_grad():
            leaves = [part.transpose(0, 1)[None].clone().requires_grad_() for layer in kv for part in layer]
            past = dynamic_cache(zip(leaves[::2], leaves[1::2], strict=True), self._sharing_layers)
            ids = torch.tensor([list(behind)], device=self._model.device)
            logits = self._model.network(ids, cache=past, use_cache=True).logits[0].float()
            # a sample for each position, with the real tokens before it: its gradients do not mix with the others' in
            # the mean, so that one pass serves all
            likelihoods = logits.log_softmax(dim=-1)
            chosen = self._sample(likelihoods.detach().exp().cpu())
            likelihood = likelihoods.gather(1, chosen.to(logits.device)).sum()
            gradients = torch.autograd.grad(likelihood, leaves)
        layers, _, tokens, heads, dim = kv.shape
        return torch.stack(gradients).reshape(layers, 2, heads, tokens, dim).float().cpu()

    def _sample(self, shares: torch.Tensor) -> torch.Tensor:
        """One token for each position ``(positions, vocabulary)`` by these shares, ``(positions, 1)``."""
        # torch.multinomial draws a number for each token of the vocabulary, a sixth of what all this takes
        sums = shares.cumsum(dim=1)
        drawn = torch.rand(len(shares), 1, generator=self._random, device="cpu", dtype=torch.float32) * sums[:, -1:]
        return torch.searchsorted(sums, drawn, right=True).clamp_max(shares.shape[1] - 1)

    def _count(self, gradients: torch.Tensor, sinks: torch.Tensor) -> None:
        positions = np.arange(gradients.shape[3])
        weights = torch.from_numpy((len(positions) - positions) ** DISTANCE_POWER).float()
        weights[:SINK_TOKENS] = 0
        weights[sinks] = 0
        self._num_tokens += int(weights.count_nonzero())
        # the rotation is orthogonal: gradients turn back as keys do
        keys = self._rotary.apply(gradients[:, 0].transpose(1, 2), -positions).transpose(1, 2)
        for half, part in enumerate((keys, gradients[:, 1])):
            weighted = part * weights[:, None]
            self._sums[:, half] += weighted.transpose(-1, -2) @ weighted


@contextmanager
def _frozen(model: LanguageModel) -> Iterator[None]:
    """Take weights out of graphs for a while, and dropout out of the network: both are put back."""
    trained = [weight for weight in model.network.parameters() if weight.requires_grad]
    in_training = [module for module in model.network.modules() if module.training]
    try:
        for weight in trained:
            weight.requires_grad_(False)
        model.network.eval()
        yield
    finally:
        for weight in trained:
            weight.requires_grad_(True)
        for module in in_training:
            # not train(), which sets all modules below it too
            module.training = True
