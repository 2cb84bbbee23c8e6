"""``cachegen ablation``: what each idea of the paper's codec, and of ``transform``, is worth on a model."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cachegen.calibration_texts import calibration_texts
from cachegen.commands.base import add_dtype, add_model, add_overwrite, check_output
from cachegen.commands.models import open_model_to_measure
from cachegen.commands.terminal import StepView, print_table
from cachegen.commands.texts import held_out_tokens
from cachegen.errors import InvalidInputError
from cachegen.provenance import describe_environment

HELP = "what each idea of the paper's codec, and of transform, is worth: both with ideas left out"
DESCRIPTION = (
    "Encode and decode a text's KV cache with default quantization, then with the ideas of the paper's codec added one "
    "after the other, then with each left out; and with transform, one idea after the other; at every level. Tables "
    "and bases are fitted to Python's own library. An idea that costs bytes may save harm: compare at equal KL."
)
_CODECS = ("cachegen", "transform")
_PACKAGES = ("numba", "numpy", "torch", "transformers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="held-out text")
    parser.add_argument("--codec", choices=(*_CODECS, "all"), default="all", help="whose ideas (default: %(default)s)")
    parser.add_argument(
        "--tokens", type=int, default=2048, metavar="N", help="tokens of context (default: %(default)s)"
    )
    parser.add_argument("--chunk-tokens", type=int, default=512, metavar="N", help="of a chunk (default: %(default)s)")
    parser.add_argument("--json", dest="output", type=Path, metavar="OUT", help="file of the result")
    parser.add_argument("--page", type=Path, metavar="OUT", help="Markdown file of the tables")
    add_model(parser)
    add_dtype(parser)
    add_overwrite(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.ablation_page import ablation_tables, render_ablation
    from cachegen.benchmark.result_file import write_result
    from cachegen.whole_file import write_whole

    for flag, value in {"--tokens": options.tokens, "--chunk-tokens": options.chunk_tokens}.items():
        if value < 1:
            raise InvalidInputError(f"{flag} is {value}, must be 1 at least")
    for path in filter(None, (options.output, options.page)):
        check_output(path, overwrite=options.overwrite)
    result = _measure(options)
    if options.output:
        write_result(options.output, result)
    if options.page:
        write_whole(options.page, render_ablation(result).encode())
    sys.stdout.write(f"{result['text']}, {result['tokens']} tokens, {result['model']}\n")
    for table in ablation_tables(result):
        print_table(table.title, table.headings, table.rows)
    return 0


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from cachegen.ablation import run_ablation
    from cachegen.benchmark.run import model_info
    from cachegen.held_out import HeldOutText
    from cachegen.transform_ablation import run_transform_ablation

    environment = describe_environment(["python", "-m", "cachegen", *options.typed], _PACKAGES)
    model = open_model_to_measure(options.model, options.dtype)
    runs = {"cachegen": run_ablation, "transform": run_transform_ablation}
    ablations = {}
    with StepView() as view:
        token_ids = held_out_tokens(model, options.text, options.tokens, view.note)
        held_out = HeldOutText(model, token_ids, options.chunk_tokens)
        for codec in _CODECS if options.codec == "all" else (options.codec,):
            rows = runs[codec](model, calibration_texts(), held_out, partial(view.step, codec))
            ablations[codec] = [asdict(row) for row in rows]
    return {
        "schema": 1,
        "model": model.name,
        "text": str(options.text),
        "tokens": held_out.cache.num_tokens,
        "chunk_tokens": options.chunk_tokens,
        "elements": held_out.num_elements,
        "model_info": model_info(model),
        "threads": torch.get_num_threads(),
        "ablations": ablations,
    } | environment
