"""``cachegen bench``: size, harm, speed and memory of every encoding on a text."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cachegen.benchmark.result_file import read_result, write_result
from cachegen.benchmark.tables import comparison_tables, encoding_table, missing_figures
from cachegen.commands.base import add_dtype, add_model, add_overwrite, add_profile, check_output
from cachegen.commands.models import as_it_serves, open_model_to_measure, profile_of_model
from cachegen.commands.terminal import StepView, print_table
from cachegen.commands.texts import held_out_tokens
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import InvalidInputError, UnknownNameError
from cachegen.provenance import describe_environment

HELP = "measure size, harm, speed and memory of every encoding on a text"
DESCRIPTION = (
    "Measure size, harm, speed and memory of every encoding on a text that the profile was not made from, and compare "
    "with zstd, 8-bit float casts and another entropy coder in the same run. docs/bench.md defines each figure."
)
_PACKAGES = ("constriction", "numba", "numpy", "torch", "transformers", "zstandard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="held-out text")
    parser.add_argument(
        "--codecs", nargs="+", default=["all"], metavar="NAMES", help="codecs or encodings, or all (the default)"
    )
    parser.add_argument(
        "--tokens", type=int, default=2048, metavar="N", help="tokens of context (default: %(default)s)"
    )
    parser.add_argument("--chunk-tokens", type=int, default=512, metavar="N", help="of a chunk (default: %(default)s)")
    parser.add_argument("--json", dest="output", type=Path, metavar="OUT", required=True, help="file of the result")
    add_model(parser)
    add_dtype(parser)
    add_profile(parser)
    add_overwrite(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    encodings = select_encodings(" ".join(options.codecs))
    for flag, value in {"--tokens": options.tokens, "--chunk-tokens": options.chunk_tokens}.items():
        if value < 1:
            raise InvalidInputError(f"{flag} is {value}, must be 1 at least")
    check_output(options.output, overwrite=options.overwrite)
    _check_peers()
    result = _measure(options, encodings)
    write_result(options.output, result)
    _print(read_result(options.output))
    sys.stdout.write(f"{options.output}\n")
    return 0


def _check_peers() -> None:
    """Refuse an installation without what the codecs are compared with."""
    missing = [name for name in ("constriction", "zstandard") if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInputError(f"not installed: {', '.join(missing)}; pip install 'cachegen[bench]' brings them")


def select_encodings(names: str) -> list[Encoding]:
    """Encodings of a list of codecs and encodings, by commas or spaces, or of ``all``, in the order of the registry."""
    listed = names.replace(",", " ").split()
    if not listed:
        raise InvalidInputError("--codecs names none")
    known = {"all", *(e.codec for e in ENCODINGS), *map(str, ENCODINGS)}
    for name in listed:
        if name not in known:
            raise UnknownNameError(f"--codecs: unknown codec {name!r}; known: {', '.join(sorted(known))}")
    return [e for e in ENCODINGS if {*listed} & {"all", e.codec, str(e)}]


def _measure(options: argparse.Namespace, encodings: Sequence[Encoding]) -> dict[str, Any]:
    from cachegen.benchmark.run import run_bench
    from cachegen.codecs.transform import TransformCodec

    environment = describe_environment(["python", "-m", "cachegen", *options.typed], _PACKAGES)
    model = open_model_to_measure(options.model, options.dtype)
    with StepView() as view:
        token_ids = held_out_tokens(model, options.text, options.tokens, view.note)
        profile = profile_of_model(
            as_it_serves(model, options.model),
            options.profile,
            lambda done, total: view.step("calibrate", done, total),
            transform=any(encoding.codec == TransformCodec.name for encoding in encodings),
        )
        result = run_bench(model, profile, token_ids, encodings, options.chunk_tokens, view.step)
    return {"schema": result["schema"], "model": model.name, "text": str(options.text)} | result | environment


def _print(result: dict[str, Any]) -> None:
    sys.stdout.write(f"{result['text']}, {result['tokens']} tokens, {result['model']}\n")
    for table in (encoding_table(result), *comparison_tables(result)):
        print_table(table.title, table.headings, table.rows)
    for sentence in missing_figures(result):
        sys.stdout.write(f"{sentence}\n")
