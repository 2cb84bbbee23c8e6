"""Measure how much noise in each layer's keys and values changes what a model predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.transform import SINK_TOKENS
from cachegen.model import LanguageModel

# Of each channel's mean deviation: large enough to stand out from rounding, small enough to stay in proportion.
NOISE_SHARE = 0.5
# What is left of it where rounding alone is measured.
ROUNDING_SHARE = 0.005
CONTINUATION_TOKENS = 128


def measure_sensitivities(
    model: LanguageModel,
    token_ids: Sequence[int],
    sigmas: npt.NDArray[np.float64],
    on_step: Callable[[], None],
) -> npt.NDArray[np.float32]:
    """KL divergence that noise in one layer's K or V causes, for each, per squared share of its own deviation.

    Parameters
    ----------
    token_ids : sequence of int
        A context; its last tokens, half of it at most, are predicted and the ones before get the noise.
    sigmas : float64 array, ``(layers, 2)``
        Root of the mean variance of K's (un-rotated) and V's channels.
    on_step : callable
        Called after each measurement.

    Returns
    -------
    float32 array, ``(layers, 2)``
    """
    split = max(len(token_ids) // 2, len(token_ids) - CONTINUATION_TOKENS)
    noise = _Noise(model, token_ids[:split], token_ids[split:])
    # a model of 16-bit elements answers a little otherwise to any change at all
    layers = range(0, len(sigmas), max(1, len(sigmas) // 4))
    rounding = float(
        np.mean([noise.divergence(layer, 0, ROUNDING_SHARE * float(sigmas[layer, 0])) for layer in layers])
    )
    result = np.empty(sigmas.shape, dtype=np.float32)
    for layer, half in np.ndindex(*sigmas.shape):
        divergence = noise.divergence(layer, half, NOISE_SHARE * float(sigmas[layer, half]))
        result[layer, half] = max(0.0, divergence - rounding) / NOISE_SHARE**2
        on_step()
    return result


class _Noise:
    """A context whose cache is spoiled in one place at a time."""

    def __init__(self, model: LanguageModel, token_ids: Sequence[int], continuation: Sequence[int]) -> None:
        self._model, self._token_ids, self._continuation = model, token_ids, continuation
        self._cache = model.new_cache(len(token_ids) + len(continuation))
        model.prefill(self._cache, token_ids)
        self._clean = self._cache.chunk(0, len(token_ids))
        self._reference = self._predict()
        self._random = torch.Generator().manual_seed(0)

    def divergence(self, layer: int, half: int, deviation: float) -> float:
        """Of the predictions when one layer's K or V gets noise, the sinks left alone."""
        noisy = self._clean.clone()
        part = noisy[layer, half, SINK_TOKENS:]
        part += (torch.randn(part.shape, generator=self._random) * deviation).to(part.device, part.dtype)
        self._cache.truncate(0)
        self._cache.append(noisy, self._token_ids)
        return float((self._reference.exp() * (self._reference - self._predict())).sum(dim=-1).mean())

    def _predict(self) -> torch.Tensor:
        return torch.log_softmax(self._model.continuation_logits(self._cache, self._continuation), dim=-1)
