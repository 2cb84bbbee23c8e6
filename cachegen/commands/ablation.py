"""``cachegen ablation``: what each idea of the paper's codec is worth on a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cachegen.calibration_texts import calibration_texts
from cachegen.commands.base import add_model
from cachegen.commands.models import open_model
from cachegen.commands.terminal import StepView, print_table
from cachegen.commands.texts import held_out_tokens
from cachegen.errors import InvalidInputError

if TYPE_CHECKING:
    from cachegen.ablation import AblationRow

HELP = "rerun the paper's ablation: its codec with each of its ideas left out"
DESCRIPTION = (
    "Encode and decode a text's KV cache with default quantization, then with the ideas of the paper's codec added one "
    "after the other, then with each left out, at every level. Tables are made from Python's own library. An idea that "
    "costs bytes may save harm: compare at equal KL."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="held-out text")
    parser.add_argument(
        "--tokens", type=int, default=2048, metavar="N", help="tokens of context (default: %(default)s)"
    )
    add_model(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.ablation import run_ablation
    from cachegen.held_out import continuation_tokens

    if options.tokens < 1:
        raise InvalidInputError(f"--tokens is {options.tokens}, must be 1 at least")
    model = open_model(options.model)
    with StepView() as view:
        token_ids = held_out_tokens(model, options.text, options.tokens, view.note)
        rows = run_ablation(
            model, calibration_texts(), token_ids, lambda done, total: view.step("ablation", done, total)
        )
    context_tokens = len(token_ids) - continuation_tokens(model.max_tokens)
    print_table(
        f"The paper's codec with and without its ideas, on {context_tokens} tokens",
        [
            "variant",
            "level",
            "bytes",
            "bits per element",
            "x smaller than fp16",
            "KL",
            "agreement",
            "perplexity change",
        ],
        [_cells(row) for row in rows],
    )
    return 0


def _cells(row: AblationRow) -> Sequence[str]:
    return (
        row.variant,
        "" if row.level is None else str(row.level),
        f"{row.num_bytes:,}",
        f"{row.bits_per_element:.3f}",
        f"{row.ratio_fp16:.2f}",
        f"{row.kl:.5f}",
        f"{row.agreement:.3f}",
        f"{row.dppl:+.3f}",
    )
