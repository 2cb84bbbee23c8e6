"""The paper's ablation, rerun on any model: what each idea of its codec is worth, in bytes and in harm.

CacheGen (SIGCOMM'24) adds to default quantization one idea after the other: coding with a table for each (layer,
channel), then deltas, then bins by layer. Here each step, and the codec without each of its ideas, is encoded to real
containers and decoded, at all levels: an idea that costs bytes may save harm, so compare at equal divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cachegen.calibration import calibration_contexts, prefilled_kv
from cachegen.chunking import KEY_BYTES, PROFILE_HASH_BYTES
from cachegen.codecs.cachegen import as_rows
from cachegen.codecs.paper_variant import PaperSwitches, PaperVariant, VariantTables
from cachegen.container import ChunkIdentity, pack, unpack
from cachegen.encoding import Encoding
from cachegen.held_out import FP16_BITS, HeldOutText
from cachegen.kernels import get_backend
from cachegen.kernels.anchor import LEVEL_MULTIPLIERS
from cachegen.kernels.tables import ALPHABET
from cachegen.kv import layout_of
from cachegen.model import LanguageModel
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile_builder import CALIBRATION_CHUNK_TOKENS

DEFAULT_QUANTIZATION = ("quant8", "quant4", "quant3")
# The paper's steps, then the codec without deltas, and with one table for all.
VARIANTS = (
    PaperSwitches(deltas=False, layer_bins=False, channel_tables=False),
    PaperSwitches(deltas=False, layer_bins=False, channel_tables=True),
    PaperSwitches(deltas=True, layer_bins=False, channel_tables=True),
    PaperSwitches(deltas=True, layer_bins=True, channel_tables=True),
    PaperSwitches(deltas=False, layer_bins=True, channel_tables=True),
    PaperSwitches(deltas=True, layer_bins=True, channel_tables=False),
)

# A chunk after its trip through a container, and the container's bytes.
RoundTrip = Callable[[torch.Tensor, ChunkIdentity], tuple[torch.Tensor, int]]
OnStep = Callable[[int, int], None]


@dataclass(frozen=True)
class AblationRow:
    """One variant at one level on one text.

    Parameters
    ----------
    variant : str
        What it has of a codec's ideas, or the name of a default quantization.
    level : int or None
        0 the finest; None for a default quantization.
    num_bytes : int
        Of all containers of the context, headers included. Tables are the profile's.
    bits_per_element, ratio_fp16 : float
        The same, per element of the KV cache, and against 16 bits.
    kl, agreement, dppl : float
        As in :class:`cachegen.HeldOutRow`.
    """

    variant: str
    level: int | None
    num_bytes: int
    bits_per_element: float
    ratio_fp16: float
    kl: float
    agreement: float
    dppl: float


def run_ablation(
    model: LanguageModel,
    texts: Sequence[str],
    held_out: HeldOutText,
    on_step: OnStep = lambda _done, _all: None,
) -> list[AblationRow]:
    """Calibrate every variant of the paper's codec and measure it at every level.

    Memory holds the counts of one variant at a time, as large as a profile's in the making.

    Parameters
    ----------
    model : LanguageModel
    texts : sequence of str
        To make the tables from, as for :func:`cachegen.calibrate`.
    held_out : HeldOutText
        Of the same model, and of a text that shares nothing with these.
    on_step : callable
        Called with (steps done, steps in all); a step is a text that is run, or a row.

    Returns
    -------
    list of AblationRow
        Default quantization, then ``VARIANTS``, each from the finest level on.

    Raises
    ------
    InvalidInputError
        No text is as long as 128 tokens.
    """
    contexts = calibration_contexts(model, texts)
    total = len(DEFAULT_QUANTIZATION) + len(VARIANTS) * (len(contexts) + len(LEVEL_MULTIPLIERS))
    rows = []
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        on_step(done, total)

    for name in DEFAULT_QUANTIZATION:
        rows.append(measure_variant(held_out, name, None, _default_quantization(name)))
        step()
    for switches in VARIANTS:
        variant = PaperVariant(switches)
        tables = calibrate_variant(model, variant, contexts, step)
        for level, level_tables in enumerate(tables):
            round_trip = _variant_round_trip(variant, level, level_tables)
            rows.append(measure_variant(held_out, str(switches), level, round_trip))
            step()
    return rows


def calibrate_variant(
    model: LanguageModel, variant: PaperVariant, contexts: Sequence[Sequence[int]], step: Callable[[], None]
) -> list[VariantTables]:
    """Tables of a variant for each level; ``step`` is called behind each context."""
    backend = get_backend("numba")
    size = (model.shape.rows, model.shape.channels, ALPHABET)
    anchors = np.zeros(size, dtype=np.uint32)
    others = [np.zeros(size, dtype=np.uint32) for _ in LEVEL_MULTIPLIERS]
    for token_ids in contexts:
        for _, piece in calibration_pieces(prefilled_kv(model, token_ids)):
            x = as_rows(piece)
            # every token counted as an anchor, as for a profile
            backend.count(backend.quantize_anchors(x)[1], anchors)
            for level, counts in enumerate(others):
                backend.count(variant.quantize(x, level).deltas, counts)
        step()
    anchor_tables = variant.tables(anchors)
    return [VariantTables(anchor_tables, variant.tables(counts)) for counts in others]


def calibration_pieces(kv: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Place and tensor of each piece of a context that a profile's tables are counted on."""
    for first in range(0, kv.shape[2], CALIBRATION_CHUNK_TOKENS):
        yield first, kv[:, :, first : first + CALIBRATION_CHUNK_TOKENS].detach().cpu()


def measure_variant(text: HeldOutText, variant: str, level: int | None, round_trip: RoundTrip) -> AblationRow:
    """Size and harm of a variant on a text, chunk by chunk."""
    decoded, num_bytes = [], 0
    for index, (first, end) in enumerate(text.spans):
        # an identity for the header's sake: no profile has these tables
        identity = ChunkIdentity(text.model.fingerprint, bytes(PROFILE_HASH_BYTES), bytes(KEY_BYTES), index, first)
        kv, size = round_trip(text.cache.chunk(first, end).detach().cpu(), identity)
        decoded.append(kv)
        num_bytes += size
    quality = text.quality_of(decoded)
    bits = 8 * num_bytes / text.num_elements
    return AblationRow(variant, level, num_bytes, bits, FP16_BITS / bits, quality.kl, quality.agreement, quality.dppl)


def _default_quantization(name: str) -> RoundTrip:
    encoding = Encoding(name)

    def round_trip(kv: torch.Tensor, identity: ChunkIdentity) -> tuple[torch.Tensor, int]:
        data = encode_chunk(kv, encoding, identity, None)
        return decode_chunk(data, None).kv, len(data)

    return round_trip


def _variant_round_trip(variant: PaperVariant, level: int, tables: VariantTables) -> RoundTrip:
    def round_trip(kv: torch.Tensor, identity: ChunkIdentity) -> tuple[torch.Tensor, int]:
        # the container is the codec's, whose sections these are; it does not leave this function
        encoding = Encoding("cachegen", level)
        data = pack(encoding, layout_of(kv), identity, variant.encode(kv, level, tables))
        container = unpack(data)
        return variant.decode(container.sections, container.layout, level, tables), len(data)

    return round_trip
