"""Loads of a stored context over a server that may fail, and what must hold of them; for tests."""

import asyncio
import time

import torch
from stored_context import LADDER
from tiny_models import random_tokens

from cachegen import (
    ContextLoader,
    HttpSource,
    LoadCosts,
    LoadLimits,
    RecomputeCost,
    StageClock,
    make_controller,
)
from cachegen.manifest import chunk_name

METHODS = {
    "text": ("text", []),
    "fixed": ("fixed:raw", ["raw"]),
    "paper": ("paper", LADDER),
    "meet": ("meet", LADDER),
}
# so that recomputing takes too long for the paper's controller, and the store is what there is
COSTS = LoadCosts(RecomputeCost(0.4, 0.0, 0.0), reserve_s=0.0)
NO_TEXT = LoadCosts(RecomputeCost(1e9, 0.0, 0.0), reserve_s=0.0)
PATIENCE_S, SILENCE_S, SLO_S = 1.5, 1.0, 1.5
QUESTION = random_tokens(4, seed=3)
# a context takes about a second, so that a fault can hit any part of a load
SLOW_BYTES_PER_S = 40_000


def load(
    stored,
    url,
    method,
    token_ids=None,
    slo_s=SLO_S,
    patience_s=PATIENCE_S,
    costs=COSTS,
    silence_s=SILENCE_S,
    on_event=None,
):
    """Load over HTTP; return the loaded context and the events."""
    events = []

    def log(event, **fields):
        events.append((event, fields))
        if on_event is not None:
            on_event(event)

    async def run():
        source = HttpSource(url, silence_s)
        loader = ContextLoader(
            stored.model,
            stored.profile,
            source,
            costs,
            log,
            LoadLimits(patience_s=patience_s),
        )
        spec, encodings = METHODS[method]
        try:
            return await loader.load(
                stored.manifest.context_key,
                make_controller(spec, encodings),
                encodings,
                slo_s,
                StageClock(time.monotonic()),
                token_ids=token_ids,
            )
        finally:
            await source.close()

    return asyncio.run(run()), events


def check(stored, clean, loaded):
    """The cache is bit for bit that of the clean run at the same levels, and so are the tokens that follow."""
    expected = clean.assemble(loaded.chunk_sources)
    assert loaded.cache.token_ids == stored.cache.token_ids
    assert torch.equal(loaded.cache.chunk(0, 56), expected.chunk(0, 56))
    answer = stored.model.generate(loaded.cache, QUESTION, max_new_tokens=8, do_sample=False)
    assert answer == clean.answer(loaded.chunk_sources, QUESTION, 8)


def said(events, *kinds):
    return [fields for event, fields in events if event in kinds]


def objects(stored, root, index, encodings):
    return [root / chunk_name(stored.manifest.chunks[index].key, encoding) for encoding in encodings]


def flip(path, chance, others):
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
