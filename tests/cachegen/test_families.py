"""Models of many families: a coded cache continues as the model's own does, or the model is refused by name."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from checks import same_bits
from families import REFUSED, SUPPORTED, context_of, letters, model_of, network_of

import cachegen.own_text
from cachegen import (
    ENCODINGS,
    Encoding,
    InvalidInputError,
    LanguageModel,
    UnsupportedModelError,
    calibrate,
    calibration_texts,
    load_model,
)
from cachegen.container import ChunkIdentity
from cachegen.model_probe import find_rotary
from cachegen.pipeline import decode_chunk, encode_chunk

CONTEXT, BEHIND = 60, 12
SPANS = ((0, 40), (40, 60))
# Elements of a head of eight that turn with the position, by layer, where they are not all eight in all layers.
TURNING = {
    "afmoe": (8, 0, 8, 0),
    "biogpt": (0, 0),
    "bloom": (0, 0),
    "codegen": (4, 4),
    "cohere2": (8, 0, 8, 0),
    "exaone4": (8, 0, 8, 0),
    "falcon (alibi)": (0, 0),
    "glm": (4, 4),
    "glm4": (4, 4),
    "glm4_moe": (4, 4),
    "gpt2": (0, 0),
    "gpt_bigcode": (0, 0),
    "gpt_neo": (0, 0),
    "gpt_neox": (4, 4),
    "gptj": (4, 4),
    "llama4_text": (8, 8, 8, 0),
    "minimax_m2": (4, 4),
    "mpt": (0, 0),
    "nemotron": (4, 4),
    "opt": (0, 0),
    "persimmon": (4, 4),
    "phi": (4, 4),
    "smollm3": (8, 8, 8, 0),
    "stablelm": (2, 2),
    "xglm": (0, 0),
}
# Their keys are not turned alone, so that the transform cannot turn them back; all other codecs take them.
WITHOUT_TRANSFORM = {"hunyuan_v1_dense"}
# A token that goes to another expert changes by more than any noise: two of phimoe's twelve positions have nearly all.
FINEST_HARM = {"phimoe": 0.1}


def small_profile(model):
    """Made of a little text, the model's own included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cachegen.own_text, "OPENINGS", cachegen.own_text.OPENINGS[:2])
        patch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
        return calibrate(model, [text[:200] for text in calibration_texts()[:2]], transform=True)


@cache
def profile_of(family):
    return small_profile(model_of(family))


@cache
def filled_cache(family):
    """The context, prefilled in pieces."""
    cached = model_of(family).new_cache(8)
    for first in range(0, CONTEXT, 25):
        model_of(family).prefill(cached, context_of(CONTEXT)[first : first + 25])
    return cached


@cache
def own_logits(family):
    """What the model itself says behind a context that its own cache holds, sliding layers and all."""
    tokens = context_of(CONTEXT + BEHIND)
    with torch.inference_mode():
        past = network_of(family)(torch.tensor([tokens[:CONTEXT]]), use_cache=True).cache
        return network_of(family)(torch.tensor([tokens[CONTEXT:]]), cache=past, use_cache=True).logits[0].float()


def loaded_cache(family, encoding):
    """The context after encoding and decoding, chunk by chunk."""
    model, profile = model_of(family), profile_of(family)
    loaded = model.new_cache(CONTEXT)
    for index, (first, end) in enumerate(SPANS):
        identity = ChunkIdentity(model.fingerprint, profile.hash, bytes(32), index, first)
        data = encode_chunk(filled_cache(family).chunk(first, end), encoding, identity, profile)
        loaded.append(decode_chunk(data, profile, identity).kv, context_of(CONTEXT)[first:end])
    return loaded


def logits_behind(family, cached):
    return model_of(family).continuation_logits(cached, context_of(CONTEXT + BEHIND)[CONTEXT:])


def divergence(reference, found):
    reference, found = (torch.log_softmax(logits.double(), dim=-1) for logits in (reference, found))
    return float((reference.exp() * (reference - found)).sum(dim=-1).mean())


@pytest.mark.parametrize("family", SUPPORTED)
def test_prefill_in_pieces_gives_the_logits_of_the_models_own_cache(family):
    torch.testing.assert_close(logits_behind(family, filled_cache(family)), own_logits(family), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", SUPPORTED)
def test_raw_chunks_come_back_bit_for_bit_and_a_recomputed_one_fits_behind_them(family):
    model, tokens = model_of(family), context_of(CONTEXT)
    loaded = loaded_cache(family, ENCODINGS[0])
    assert same_bits(loaded.chunk(0, CONTEXT), filled_cache(family).chunk(0, CONTEXT))
    assert torch.equal(logits_behind(family, loaded), logits_behind(family, filled_cache(family)))
    loaded.truncate(SPANS[0][1])
    model.prefill(loaded, tokens[SPANS[0][1] :])
    torch.testing.assert_close(logits_behind(family, loaded), own_logits(family), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", SUPPORTED)
def test_every_lossy_encoding_changes_what_the_model_says_and_the_finest_little(family):
    reference, harms = logits_behind(family, filled_cache(family)), {}
    for encoding in ENCODINGS[1:]:
        if encoding.codec != "transform" or family not in WITHOUT_TRANSFORM:
            harms[str(encoding)] = divergence(reference, logits_behind(family, loaded_cache(family, encoding)))
    assert min(harms.values()) > 0
    for finest, coarsest in (("quant8", "quant4"), ("cachegen-0", "cachegen-4"), ("transform-0", "transform-7")):
        if finest in harms:
            assert harms[finest] < harms[coarsest] / 4
    assert harms["quant8"] < 0.03
    assert harms.get("transform-0", 0.0) < FINEST_HARM.get(family, 0.03)


@pytest.mark.parametrize("family", SUPPORTED)
def test_generation_behind_the_cache_is_the_models_own(family):
    tokens = context_of(CONTEXT + BEHIND)
    options = {"max_new_tokens": 4, "do_sample": False}
    ids = torch.tensor([tokens])
    own = network_of(family).generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(tokens) :].tolist()
    assert model_of(family).generate(filled_cache(family), tokens[CONTEXT:], **options) == own


@pytest.mark.parametrize("family", sorted(SUPPORTED.keys() - WITHOUT_TRANSFORM))
def test_what_turns_of_each_layers_keys_is_found(family):
    rotary = find_rotary(model_of(family))
    turning = tuple(int((rotary.frequencies[kind] != 0).sum()) for kind in rotary.of_layer)
    layers = model_of(family).shape.num_layers
    assert turning == TURNING.get(family, (8,) * layers)


@pytest.mark.parametrize("family", sorted(WITHOUT_TRANSFORM))
def test_keys_that_are_not_turned_alone_are_refused_by_name_before_anything_is_encoded(family):
    assert f"{family} ({family}): keys of layer 0 turn" in profile_of(family).tables.transform


@pytest.mark.parametrize("family", REFUSED)
def test_what_is_not_keys_and_values_alone_is_refused_by_name(family):
    with pytest.raises(UnsupportedModelError, match=f"mine .{family}.: ") as refusal:
        LanguageModel(network_of(family), None, "mine")
    assert REFUSED[family][1] in str(refusal.value)


@pytest.mark.parametrize("family", SUPPORTED)
def test_a_context_as_long_as_the_model_was_made_for_is_taken_and_no_longer_one(family):
    model = model_of(family)
    full = model.new_cache(8)
    longest = model.max_tokens or 300
    model.prefill(full, context_of(longest))
    assert longest == {"bloom": 300, "phi3": 192}.get(family, 256)
    if model.max_tokens:
        with pytest.raises(InvalidInputError, match=f"{longest + 1} tokens are more than"):
            model.prefill(full, [1])


# Attention of each kind: grouped, with a cap, with sinks, with linear biases, with learned positions, in a wrapper.
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss", "bloom", "mpt", "gpt_neo", "gptj", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_model_loads_calibrates_and_keeps_its_dtype(family, dtype, tmp_path):
    network_of(family).save_pretrained(tmp_path)
    letters().save_pretrained(tmp_path)
    model = load_model(tmp_path, device="cpu", dtype=dtype)
    profile, source = small_profile(model), model.new_cache(40)
    model.prefill(source, context_of(40))
    for encoding in (Encoding("raw"), Encoding("quant8"), Encoding("cachegen", 0), Encoding("transform", 0)):
        identity = ChunkIdentity(model.fingerprint, profile.hash, bytes(32), 0, 0)
        kv = decode_chunk(encode_chunk(source.chunk(0, 40), encoding, identity, profile), profile, identity).kv
        assert kv.dtype == dtype
        # the steps of transform go by what errors do, not by how large they are
        bound = 0.2 if encoding.codec == "transform" else 0.1
        assert float((kv.float() - source.chunk(0, 40).float()).norm() / source.chunk(0, 40).float().norm()) < bound
    assert load_model(tmp_path, device="cpu", dtype=torch.float32).fingerprint == model_of(family).fingerprint


def test_the_documentation_lists_the_families_that_are_tried():
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    work, refused = (
        re.findall(r"`([\w-]+)`", " ".join(line.split("|")[-2] for line in part.splitlines() if line.startswith("| ")))
        for part in text.split("\n## ")[1:]
    )
    assert sorted(work) == sorted({family.split()[0] for family in SUPPORTED})
    assert sorted(refused) == sorted(REFUSED)
