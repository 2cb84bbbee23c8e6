"""A made-up model whose keys and values follow from each token and the one before it, but for noise."""

import torch
from checks import IDENTITY, make_features, make_tokens

from cachegen.codecs.base import CodecTables
from cachegen.codecs.rotary import no_rotary
from cachegen.kv import KVShape
from cachegen.profile import Profile
from cachegen.profile_builder import ProfileBuilder
from cachegen.token_moments import TokenFeatures
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

SHAPE = KVShape(2, 2, 16)
ENTRIES, OWN, PREVIOUS = 300, 24, 8
CALIBRATION_TOKENS = 3000


def features() -> TokenFeatures:
    """What is known of the model's tokens: all that shows in its keys and values."""
    return make_features(ENTRIES, OWN, PREVIOUS)


def context(count: int, seed: int, noise: float = 0.05) -> tuple[torch.Tensor, list[int]]:
    """Keys and values of a context of random tokens, float32, and the tokens."""
    tokens, known = make_tokens(count, ENTRIES, seed), features()
    # one model, whatever the context
    rng = torch.Generator().manual_seed(9)
    channels = SHAPE.rows * SHAPE.channels
    own, previous = (torch.randn((size, channels), generator=rng) for size in (OWN, PREVIOUS))
    x = known.own[tokens].float() @ own
    x[1:] += known.previous[tokens[:-1]].float() @ previous
    x += noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return x.reshape(count, SHAPE.num_layers, 2, SHAPE.num_kv_heads, SHAPE.head_dim).permute(1, 2, 0, 3, 4), tokens


def profile_with_codebook() -> Profile:
    """Of one long context."""
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint, features=features())
    builder.add(*context(CALIBRATION_TOKENS, seed=1))
    return builder.build()


def profile_without(profile: Profile, *, codebook: bool = False, references: bool = False) -> Profile:
    """The profile that the same moments make where the codebook, or references, or both are left out."""
    kv, tokens = context(CALIBRATION_TOKENS, seed=1)
    moments = TransformMoments(SHAPE, no_rotary(SHAPE.num_layers, SHAPE.head_dim), features=features())
    moments.add(kv, 0, tokens)
    tables = profile.tables
    transform = fit_transform(moments, codebook=codebook, references=references)
    return Profile(SHAPE, profile.model_fingerprint, CodecTables(tables.anchors, tables.deltas, transform))
