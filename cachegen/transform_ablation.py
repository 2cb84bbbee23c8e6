"""The stages of the ``transform`` codec: what each of its ideas is worth, in bytes and in harm.

Each stage is the codec itself with a profile that was fitted without the ideas of the later ones, so that its
containers are real and decode with the code that decodes all. All stages see the same texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from cachegen.ablation import AblationRow, OnStep, RoundTrip, calibration_pieces, measure_variant
from cachegen.basis_fit import block_widths
from cachegen.calibration import calibration_contexts, longest_context, prefilled_kv
from cachegen.codecs.base import CodecTables
from cachegen.codecs.frequencies import build_tables
from cachegen.codecs.rotary import Rotary
from cachegen.codecs.transform import TransformCodec
from cachegen.codecs.transform_tables import TransformTables
from cachegen.codecs.units import APART, JOINT, Grouping, units_of
from cachegen.container import ChunkIdentity, pack, unpack
from cachegen.encoding import Encoding
from cachegen.fisher import FisherInformation
from cachegen.held_out import HeldOutText
from cachegen.kernels.tables import ALPHABET
from cachegen.kernels.uniform import LEVEL_PLACES
from cachegen.kv import KVShape, layout_of
from cachegen.model import LanguageModel
from cachegen.model_probe import find_rotary
from cachegen.own_text import num_own_texts, sample_own_texts
from cachegen.token_features import token_features
from cachegen.token_moments import TokenFeatures
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

# Layers that one basis spans in the stages between one layer and as many as a unit takes.
_GROUP_LAYERS = (5, 10, 15)


@dataclass(frozen=True)
class TransformStage:
    """The codec with some of its ideas.

    Parameters
    ----------
    name : str
        What it adds to the stage before.
    grouping : Grouping
        Channels that one basis spans.
    decorrelate, layer_steps, key_metric : bool
        Whether there is a KLT; whether steps go by what noise in a layer costs; whether keys are weighted by what
        errors in their directions do. Both are Fisher information.
    codebook : bool
        Whether what a token's identity says is taken off first.
    references : bool
        Whether tokens are predicted from earlier ones of the chunk.
    token_steps : bool
        Whether steps go by the distance to the context's end.
    in_stages : bool
        Whether bases have blocks, which halves the multiplications.
    """

    name: str
    grouping: Grouping
    decorrelate: bool = True
    layer_steps: bool = False
    key_metric: bool = False
    codebook: bool = False
    references: bool = False
    token_steps: bool = False
    in_stages: bool = False


def stages_of(shape: KVShape, *, codebook: bool) -> list[TransformStage]:
    """Stages for a model, the last one the whole codec; groups of layers as far as a unit takes them.

    ``codebook`` says whether features of its tokens are known.
    """
    one_layer = Grouping(min(shape.channels, APART.unit_channels), joint=False)
    first = TransformStage("no transform, a step a layer", one_layer, decorrelate=False)
    stages = [
        first,
        replace(first, name="+ KLT across the KV heads of a layer", decorrelate=True),
        replace(first, name="+ steps by Fisher information", decorrelate=True, layer_steps=True),
        TransformStage("+ key metric of Fisher information", one_layer, layer_steps=True, key_metric=True),
    ]
    sizes = [layers * shape.channels for layers in _GROUP_LAYERS if layers * shape.channels < APART.unit_channels]
    seen = units_of(shape, one_layer)
    for grouping in (*(Grouping(size, joint=False) for size in sizes), APART):
        units = units_of(shape, grouping)
        if len(units) < len(seen):
            layers = max(unit.channels for unit in units) / shape.channels
            stages.append(replace(stages[-1], name=f"+ KLT across {layers:g} layers", grouping=grouping))
            seen = units
    stages.append(replace(stages[-1], name="+ KLT across keys and values", grouping=JOINT))
    if codebook:
        stages.append(replace(stages[-1], name="+ codebook of tokens", codebook=True))
    stages.append(replace(stages[-1], name="+ references to earlier tokens", references=True))
    if any(len(block_widths(unit.channels, 2, shape.head_dim)) > 1 for unit in units_of(shape, JOINT)):
        stages.append(replace(stages[-1], name="+ bases in stages", in_stages=True))
    return [*stages, replace(stages[-1], name="+ steps by token: the whole codec", token_steps=True)]


def run_transform_ablation(
    model: LanguageModel,
    texts: Sequence[str],
    held_out: HeldOutText,
    on_step: OnStep = lambda _done, _all: None,
) -> list[AblationRow]:
    """Fit every stage of the codec and measure it at every level.

    Memory holds second moments and a sample for each size of group, see ``TransformMoments``: three to five for most.

    Parameters
    ----------
    texts : sequence of str
        To fit to, as for :func:`cachegen.calibrate`; the model's own texts are added as there.
    held_out : HeldOutText
        Of the same model, and of a text that shares nothing with these.
    on_step : callable
        Called with (steps done, steps in all).

    Returns
    -------
    list of AblationRow
        Stage after stage, each from the finest level on.

    Raises
    ------
    InvalidInputError
        No text is as long as 128 tokens.
    UnsupportedModelError
        The model's keys turn in no known way.
    """
    contexts, rotary = calibration_contexts(model, texts), find_rotary(model)
    features = token_features(model)
    stages = stages_of(model.shape, codebook=features is not None)
    num_contexts = len(contexts) + num_own_texts(longest_context(model))
    total = num_contexts + len(stages) * len(LEVEL_PLACES)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        on_step(done, total)

    evidence = gather_evidence(model, contexts, rotary, features, {stage.grouping for stage in stages}, step)
    rows = []
    fitted: TransformTables | None = None
    for stage in stages:
        # steps by token are the encoder's: the profile is that of the stage before
        if fitted is None or not stage.token_steps:
            fitted = evidence.fit(stage)
        for level in range(len(LEVEL_PLACES)):
            round_trip = _round_trip(fitted, level, held_out.cache.num_tokens if stage.token_steps else None)
            rows.append(measure_variant(held_out, stage.name, level, round_trip))
            step()
    return rows


@dataclass(frozen=True)
class Evidence:
    """What stages are fitted to: moments for each size of unit, and what errors do to the model."""

    moments: dict[Grouping, TransformMoments]
    fisher: npt.NDArray[np.float32] | None

    def fit(self, stage: TransformStage) -> TransformTables:
        """Parameters of the codec at a stage."""
        return fit_transform(
            self.moments[stage.grouping],
            self.fisher if stage.layer_steps else None,
            key_metric=stage.key_metric,
            decorrelate=stage.decorrelate,
            codebook=stage.codebook,
            references=stage.references,
            in_stages=stage.in_stages,
        )


def gather_evidence(
    model: LanguageModel,
    contexts: Sequence[list[int]],
    rotary: Rotary,
    features: TokenFeatures | None,
    groupings: set[Grouping],
    step: Callable[[], None],
) -> Evidence:
    """Run the texts as :func:`cachegen.calibrate` does; ``step`` is called after each."""
    # only stages of the codec's own units have a codebook
    known = {JOINT: features}
    moments = {each: TransformMoments(model.shape, rotary, each, known.get(each)) for each in groupings}
    fisher = FisherInformation(model, rotary)
    for token_ids in (*contexts, *sample_own_texts(model, longest_context(model))):
        kv = prefilled_kv(model, token_ids)
        for first, piece in calibration_pieces(kv):
            for each in moments.values():
                each.add(piece, first, token_ids)
        fisher.add(kv, token_ids)
        step()
    return Evidence(moments, fisher.blocks())


def _round_trip(transform: TransformTables, level: int, context_tokens: int | None) -> RoundTrip:
    """Encode and decode a chunk; of a context of so many tokens, so that its steps go by token, or by level alone."""
    # the codec reads no other's tables
    tables = CodecTables(build_tables(np.zeros((1, 1, ALPHABET), dtype=np.uint32)), (), transform)
    codec = TransformCodec("numba")

    def round_trip(kv: torch.Tensor, identity: ChunkIdentity) -> tuple[torch.Tensor, int]:
        first = identity.first_token
        behind = None if context_tokens is None else context_tokens - first - kv.shape[2]
        sections = codec.encode(kv, level, tables, first, behind)
        data = pack(Encoding(codec.name, level), layout_of(kv), identity, sections)
        container = unpack(data)
        return codec.decode(container.sections, container.layout, level, tables, first), len(data)

    return round_trip
