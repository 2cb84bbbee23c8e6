"""The benchmark: every encoding, then the comparisons, in one process on the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from cachegen.benchmark.casts import compare_casts
from cachegen.benchmark.coders import compare_coders
from cachegen.benchmark.lossless import compare_lossless
from cachegen.benchmark.result_file import BENCH_SCHEMA
from cachegen.benchmark.rows import BenchRow, measure_row
from cachegen.benchmark.timing import timed
from cachegen.encoding import Encoding
from cachegen.errors import UnsupportedModelError
from cachegen.held_out import HeldOutText
from cachegen.model import LanguageModel
from cachegen.pipeline import warm_up
from cachegen.profile import Profile

_PREFILL_REPEATS = 3

OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Refused:
    """An encoding that cannot code this model, and why."""

    codec: str
    level: int | None
    reason: str


def run_bench(
    model: LanguageModel,
    profile: Profile,
    token_ids: Sequence[int],
    encodings: Sequence[Encoding],
    chunk_tokens: int,
    on_step: OnStep,
) -> dict[str, Any]:
    """Measure encodings on a text.

    Parameters
    ----------
    token_ids : sequence of int
        Context and the 256 tokens behind it, of a text that the profile was not made from.
    on_step : callable
        Called with (step, done, total).

    Returns
    -------
    dict
        Plain values: ``rows`` of :class:`BenchRow`, ``refused``, ``comparisons``, and what they were measured on.
    """
    on_step("warm up and prefill", 0, 1)
    warm_up()
    text = HeldOutText(model, token_ids, chunk_tokens)
    prefill_s = _prefill_s(text)
    on_step("warm up and prefill", 1, 1)
    rows: list[BenchRow] = []
    refused: list[Refused] = []
    for done, encoding in enumerate(encodings, start=1):
        try:
            rows.append(measure_row(text, profile, encoding, prefill_s))
        except UnsupportedModelError as error:
            refused.append(Refused(encoding.codec, encoding.level, str(error)))
        on_step("encodings", done, len(encodings))
    return {
        "schema": BENCH_SCHEMA,
        "tokens": text.cache.num_tokens,
        "chunk_tokens": chunk_tokens,
        "elements": text.num_elements,
        "model_info": model_info(model),
        "profile_hash": profile.hash.hex(),
        "threads": torch.get_num_threads(),
        "rows": [row.to_json() for row in rows],
        "refused": [asdict(row) for row in refused],
        "comparisons": _compare(text, profile, on_step),
    }


def _compare(text: HeldOutText, profile: Profile, on_step: OnStep) -> dict[str, Any]:
    comparisons: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "lossless": lambda: compare_lossless(text, profile),
        "casts": lambda: compare_casts(text),
        "coders": lambda: compare_coders(text, profile),
    }
    found = {}
    for done, (name, compare) in enumerate(comparisons.items(), start=1):
        found[name] = compare()
        on_step("comparisons", done, len(comparisons))
    return found


def _prefill_s(text: HeldOutText) -> float:
    def prefill() -> None:
        cache = text.model.new_cache(text.cache.num_tokens)
        for first, end in text.spans:
            text.model.prefill(cache, text.cache.token_ids[first:end])

    return timed(prefill, _PREFILL_REPEATS)[1]


def model_info(model: LanguageModel) -> dict[str, Any]:
    """What a result says of the model that it was measured with."""
    return {
        "fingerprint": model.fingerprint.hex(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "kv_shape": asdict(model.shape),
    }
