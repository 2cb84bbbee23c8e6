"""Smaller contexts: the right entries stay, at the right positions, and are stored under keys of their own."""

import asyncio
import time

import pytest
import torch

from cachegen import (
    ContextLoader,
    InvalidInputError,
    LoadCosts,
    RecomputeCost,
    StageClock,
    StoreSource,
    cached_profile,
    calculate_kv,
    compare_logits,
    default_model_path,
    load_model,
    make_controller,
    open_store,
    store_kv,
)
from testbed.answer import greedy_tokens
from testbed.methods import make_method
from testbed.prepare import prepare
from testbed.reductions import REDUCTIONS, parse_reduction
from testbed.reductions.base import kept
from testbed.reductions.h2o import attention_sums, entry_ids, heavy_and_recent

TEXT = (
    "The harbour master keeps a list of all ships. The list names the ship, its home port and its cargo. On Monday the "
    "Aurora came from Oslo with timber. On Tuesday the Bellona came from Lisbon with cork. On Wednesday nobody came. "
) * 4


@pytest.fixture(scope="module")
def model():
    return load_model(default_model_path(), dtype=torch.float32)


@pytest.fixture(scope="module")
def whole(model):
    return calculate_kv(model, TEXT)


def reduced(model, whole, name):
    spec = parse_reduction(name)
    return spec.reduction.reduce(model, whole, spec.share, 64)


def test_attention_sums_are_transformers_own_weights_added_up(model, whole):
    token_ids = whole.token_ids[:50]
    before = model.network.config._attn_implementation
    sums = attention_sums(model, token_ids, 16)

    assert model.network.config._attn_implementation == before
    model.network.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            weights = model.network(torch.tensor([token_ids]), output_attentions=True).attentions
    finally:
        model.network.set_attn_implementation(before)
    # 9 query heads look at 3 KV heads
    expected = torch.stack([layer[0].sum(1).reshape(3, 3, -1).sum(1) for layer in weights])
    torch.testing.assert_close(sums, expected, rtol=1e-3, atol=1e-3)
    # each query gives 1 in all
    assert sums.sum((1, 2)).tolist() == pytest.approx([9 * 50.0] * 30, rel=1e-4)


def test_the_last_ones_stay_and_the_heaviest_before_them():
    sums = torch.tensor([[[5.0, 1, 9, 2, 0, 0], [0, 7, 0, 8, 9, 9]]])
    assert heavy_and_recent(sums, 4).tolist() == [[[0, 2, 4, 5], [1, 3, 4, 5]]]
    assert heavy_and_recent(sums, 6).tolist() == [[[0, 1, 2, 3, 4, 5]] * 2]


def test_h2o_keeps_each_heads_own_entries_as_they_are_and_their_places(model, whole):
    small = reduced(model, whole, "h2o-50")
    kv, all_kv = (cache.chunk(0, cache.num_tokens) for cache in (small, whole))

    assert small.num_tokens == round(whole.num_tokens / 2)
    assert small.num_tokens + small.skipped_tokens == whole.num_tokens
    for layer, head in ((0, 0), (17, 2)):
        rows = {tuple(row) for row in all_kv[layer, 0, :, head].tolist()}
        assert all(tuple(row) in rows for row in kv[layer, 0, :, head].tolist())
    # the most recent quarter is there for all
    recent = small.num_tokens // 2
    assert torch.equal(kv[:, :, -recent:], all_kv[:, :, -recent:])


def test_h2o_that_keeps_nearly_all_predicts_nearly_the_same_and_worse_the_less_it_keeps(model, whole):
    behind = model.tokenize(" On Thursday the Celeste came from Porto with wine.")
    reference = model.continuation_logits(whole, behind[:-1])
    kl = {
        name: compare_logits(
            reference, model.continuation_logits(reduced(model, whole, name), behind[:-1]), behind[1:]
        ).kl
        for name in ("h2o-99", "h2o-50", "h2o-5")
    }
    assert kl["h2o-99"] < 0.05
    assert kl["h2o-99"] < kl["h2o-50"] < kl["h2o-5"]


def test_entry_ids_are_no_tokens_and_differ_with_context_and_selection():
    places = torch.tensor([[[0, 2, 3]]])
    ids = entry_ids([7, 8, 9, 10], places)
    assert len(ids) == len(set(ids)) == 3
    assert all(2**31 <= number < 2**32 for number in ids)
    assert ids == entry_ids([7, 8, 9, 10], places)
    assert ids != entry_ids([7, 8, 9, 11], places)
    assert ids != entry_ids([7, 8, 9, 10], torch.tensor([[[0, 1, 3]]]))


def test_lingua_leaves_a_text_whose_kv_a_prefill_gives_and_drops_what_can_be_guessed(model, whole):
    small = reduced(model, whole, "lingua-50")

    assert (small.num_tokens, small.skipped_tokens) == (kept(0.5, whole.num_tokens), 0)
    again = calculate_kv(model, small.token_ids)
    torch.testing.assert_close(small.chunk(0, small.num_tokens), again.chunk(0, small.num_tokens), rtol=1e-2, atol=1e-3)
    places = placed(small.token_ids, whole.token_ids)
    assert len(places) == small.num_tokens
    # of a text that is said twice, the second time can be guessed
    twice = calculate_kv(model, whole.token_ids[: whole.num_tokens // 2])
    places = placed(reduced(model, twice, "lingua-50").token_ids, twice.token_ids)
    assert sum(place < twice.num_tokens // 2 for place in places) > 0.6 * len(places)


def placed(token_ids, among):
    """Places at which tokens stand in a longer row, in order; fewer than there are tokens if they do not."""
    rest = iter(enumerate(among))
    return [next(place for place, other in rest if other == token) for token in token_ids]


@pytest.mark.parametrize("name", ["h2o-50", "lingua-50"])
@pytest.mark.parametrize("encoding", ["raw", "cachegen-0"])
def test_a_reduced_context_is_stored_and_loaded_like_any_other(model, whole, name, encoding, tmp_path):
    small, profile = reduced(model, whole, name), cached_profile(model)
    manifest = store_kv(str(tmp_path), model, small, [encoding], profile, 32)
    plain = store_kv(str(tmp_path), model, whole, [encoding], profile, 32)
    assert manifest.context_key != plain.context_key
    if name == "h2o-50":
        assert not {chunk.key for chunk in manifest.chunks} & {chunk.key for chunk in plain.chunks}

    loaded = load(model, profile, tmp_path, manifest, encoding)
    assert loaded.token_ids == small.token_ids
    loaded.skipped_tokens = small.skipped_tokens
    answers = [greedy_tokens(model, cache, model.tokenize(" On Thursday the")) for cache in (loaded, small)]
    assert loaded.num_tokens == small.num_tokens
    assert len(answers[0]) > 0
    if encoding == "raw":
        assert torch.equal(loaded.chunk(0, small.num_tokens), small.chunk(0, small.num_tokens))
        assert answers[0] == answers[1]


def test_a_chunk_of_dropped_entries_that_does_not_come_fails_the_request_rather_than_be_made_up(model, whole, tmp_path):
    small, profile = reduced(model, whole, "h2o-50"), cached_profile(model)
    manifest = store_kv(str(tmp_path), model, small, ["raw"], profile, 32)
    key = manifest.chunks[1].key.hex()
    open_store(str(tmp_path)).delete(f"chunks/{key[:2]}/{key}/raw")

    with pytest.raises(InvalidInputError, match="the vocabulary is 0 to"):
        load(model, profile, tmp_path, manifest, "raw")


def load(model, profile, folder, manifest, encoding):
    async def run():
        source = StoreSource(open_store(str(folder)))
        costs = LoadCosts(RecomputeCost(0.0, 0.0, 0.0), 0.0)
        loader = ContextLoader(model, profile, source, costs, lambda event, **fields: None)
        controller = make_controller(f"fixed:{encoding}", [encoding])
        loaded = await loader.load(manifest.context_key, controller, [encoding], 1.0, StageClock(time.monotonic()))
        await source.close()
        return loaded.cache

    return asyncio.run(run())


@pytest.mark.parametrize("name", ["h2o-0", "h2o-100", "h2o", "h2o-5.5", "gzip-50", "cachegen-2", "H2O-50"])
def test_what_is_no_reduction_is_none(name):
    assert parse_reduction(name) is None


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_share_is_a_whole_percentage(kind):
    assert parse_reduction(f"{kind}-7").share == 0.07
    assert parse_reduction(f"{kind}-50").kind == kind


def test_preparing_stores_each_reduction_with_the_encodings_that_its_methods_need(tmp_path):
    methods = ["cachegen-2", "h2o-50", "h2o-50+cachegen-1", "lingua-30+text"]
    settings = {
        "model": None,
        "methods": methods,
        "contexts": "needle",
        "num_contexts": 1,
        "context_tokens": 128,
        "chunk_tokens": 64,
        "seed": 0,
        "store": str(tmp_path),
    }
    prepared = prepare(settings, lambda step, done, total: None)
    (context,) = prepared.contexts

    assert {name: list(stored.manifest.chunks[0].encodings) for name, stored in context.stored.items()} == {
        "": ["cachegen-2"],
        "h2o-50": ["quant8", "cachegen-1"],
        "lingua-30": ["raw"],
    }
    whole, half = context.stored[""], context.stored["h2o-50"]
    assert (whole.num_tokens, half.num_tokens) == (len(context.token_ids), round(len(context.token_ids) / 2))
    assert half.skipped_tokens == whole.num_tokens - half.num_tokens
    assert prepared.costs_of(whole).recompute == prepared.costs.recompute
    assert prepared.costs_of(half).recompute.predict(0, 64) > 1e8
    assert make_method("lingua-30+text").reduction == "lingua-30"
