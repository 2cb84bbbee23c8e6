"""Build a profile: count the symbols of calibration contexts and gather what the transform is fitted to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import CodecTables
from cachegen.codecs.cachegen import as_rows
from cachegen.codecs.frequencies import build_tables
from cachegen.codecs.rotary import Rotary, no_rotary
from cachegen.codecs.transform_tables import TransformTables
from cachegen.errors import InvalidInputError, MismatchError
from cachegen.kernels import get_backend
from cachegen.kernels.anchor import LEVEL_MULTIPLIERS
from cachegen.kernels.tables import ALPHABET
from cachegen.kv import KVShape, check_kv
from cachegen.profile import Profile
from cachegen.token_moments import TokenFeatures
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

# A context is counted in pieces of this many tokens, as it would be cut in chunks: sigma is each chunk's own.
CALIBRATION_CHUNK_TOKENS = 510
LARGEST_COUNT = int(np.iinfo(np.uint32).max)


class ProfileBuilder:
    """Counts the symbols of calibration contexts and turns them into a profile.

    It holds 6 tables of 256 counts of 4 bytes for each channel of each layer's K and V: 1.6 GB for a model of 7B with
    32 layers x 32 heads x 128, 0.4 GB for one of 8B with 8 KV heads; and what ``TransformMoments`` holds.

    Parameters
    ----------
    shape : KVShape
        The model's KV shape.
    model_fingerprint : bytes
        16 bytes that name the model.
    rotary : Rotary or str, optional
        How the model's keys turn, or why the ``transform`` codec cannot code them; default: not at all.
    features : TokenFeatures, optional
        What is known of each token beforehand; default: nothing.
    """

    def __init__(
        self,
        shape: KVShape,
        model_fingerprint: bytes,
        rotary: Rotary | str | None = None,
        features: TokenFeatures | None = None,
    ) -> None:
        self._shape = shape
        self._fingerprint = model_fingerprint
        self._backend = get_backend("numba")
        size = (shape.rows, shape.channels, ALPHABET)
        self._num_tokens = 0
        self._anchors = np.zeros(size, dtype=np.uint32)
        self._deltas = [np.zeros(size, dtype=np.uint32) for _ in LEVEL_MULTIPLIERS]
        rotary = rotary or no_rotary(shape.num_layers, shape.head_dim)
        self._refusal = rotary if isinstance(rotary, str) else None
        self._moments = None if isinstance(rotary, str) else TransformMoments(shape, rotary, features=features)

    def add(self, kv: torch.Tensor, token_ids: Sequence[int] = ()) -> None:
        """Count one context ``(num_layers, 2, num_tokens, num_kv_heads, head_dim)`` of any length, from its start.

        ``token_ids`` are its tokens, needed where there are features.

        Every token is counted as if it were an anchor: which ones are is an accident of the chunk's start,
        and ten times as many samples fill the tables.

        Raises
        ------
        InvalidInputError, NonFiniteError
            The tensor cannot be coded, or the contexts have more tokens than can be counted, 2^32 - 1.
        MismatchError
            It is of another shape.
        """
        shape = check_kv(kv)
        if shape != self._shape:
            raise MismatchError(f"KV tensor has {shape}, the profile is for {self._shape}")
        self._num_tokens += kv.shape[2]
        if self._num_tokens > LARGEST_COUNT:
            raise InvalidInputError(f"{self._num_tokens} tokens of calibration are more than {LARGEST_COUNT}")
        for first in range(0, kv.shape[2], CALIBRATION_CHUNK_TOKENS):
            piece = kv[:, :, first : first + CALIBRATION_CHUNK_TOKENS].detach().cpu()
            x = as_rows(piece)
            self._backend.count(self._backend.quantize_anchors(x)[1], self._anchors)
            for level, counts in enumerate(self._deltas):
                self._backend.count(self._backend.quantize(x, level).deltas, counts)
            if self._moments is not None:
                self._moments.add(piece, first, token_ids)

    def build(self, fisher: npt.NDArray[np.float32] | None = None) -> Profile:
        """Profile of all contexts so far.

        Parameters
        ----------
        fisher : float32 array, optional
            What errors in keys and values do to the model, see :func:`fit_transform`.

        Raises
        ------
        InvalidInputError
            The contexts have no deltas to count.
        """
        if not self._deltas[0].any():
            raise InvalidInputError("a profile needs at least one context of 2 tokens or more")
        deltas = tuple(build_tables(counts) for counts in self._deltas)
        transform: TransformTables | str
        if self._moments is None:
            transform = str(self._refusal)
        elif self._moments.num_tokens == 0:
            transform = "its profile was made of contexts that are too short"
        else:
            transform = fit_transform(self._moments, fisher)
        return Profile(self._shape, self._fingerprint, CodecTables(build_tables(self._anchors), deltas, transform))
