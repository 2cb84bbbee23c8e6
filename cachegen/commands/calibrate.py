"""``cachegen calibrate``: the profile of a model, and what it is worth on text that it did not see."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cachegen.calibration_texts import calibration_texts
from cachegen.commands.base import add_dtype, add_model, add_overwrite, check_output
from cachegen.commands.models import as_it_serves, open_model_to_measure
from cachegen.commands.terminal import StepView, print_table
from cachegen.commands.texts import CHARACTERS_PER_TOKEN
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import InvalidInputError, QualityError
from cachegen.held_out_text import held_out_text
from cachegen.input_file import read_text

if TYPE_CHECKING:
    from cachegen.held_out import HeldOutRow
    from cachegen.model import LanguageModel
    from cachegen.profile import Profile

HELP = "make a model's profile, and check it on text that it did not see"
DESCRIPTION = (
    "Make a model's profile from texts, mixed ones out of Python's own library by default, and check it on a text that "
    "it did not see. The profile appears whole or not at all."
)
# Context and what is predicted behind it.
_HELD_OUT_TOKENS = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    add_model(parser)
    add_dtype(parser)
    parser.add_argument("--texts", type=Path, nargs="+", metavar="FILE", help="texts of mixed kinds")
    parser.add_argument("-o", dest="output", type=Path, required=True, metavar="PROFILE", help="safetensors file")
    parser.add_argument(
        "--held-out", type=Path, metavar="FILE", help="text to check on (default: Python's language reference)"
    )
    parser.add_argument(
        "--no-transform",
        dest="transform",
        action="store_false",
        help="leave out the transform codec, which takes most of the time",
    )
    add_overwrite(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.calibration import CALIBRATION_TOKENS_PER_TEXT, calibrate
    from cachegen.profile import save_profile

    check_output(options.output, overwrite=options.overwrite)
    max_characters = CALIBRATION_TOKENS_PER_TEXT * CHARACTERS_PER_TOKEN
    texts = [read_text(path, max_characters) for path in options.texts] if options.texts else calibration_texts()
    unseen = read_text(options.held_out, max_characters) if options.held_out else held_out_text()[:max_characters]
    if unseen in texts:
        raise InvalidInputError(f"{options.held_out or 'the text to check on'}: is one of --texts, so it was seen")
    model = open_model_to_measure(options.model, options.dtype)
    # the profile is for those who load the model as it serves, whatever it is measured in
    served = as_it_serves(model, options.model).fingerprint
    with StepView() as view:
        profile = calibrate(
            model,
            texts,
            lambda done, total: view.step("calibrate", done, total),
            transform=options.transform,
        )
    profile = replace(profile, model_fingerprint=served)
    save_profile(profile, options.output)
    _report(profile, options.output)
    _check(model, profile, unseen)
    return 0


def _report(profile: Profile, path: Path) -> None:
    shape = profile.shape
    sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")
    sys.stdout.write(f"  profile {profile.hash.hex()}\n")
    sys.stdout.write(
        f"  model   {profile.model_fingerprint.hex()}, {shape.num_layers} layers, {shape.num_kv_heads} KV heads, "
        f"head dim {shape.head_dim}\n"
    )
    if isinstance(profile.tables.transform, str):
        sys.stdout.write(f"  no transform: {profile.tables.transform}\n")


def _check(model: LanguageModel, profile: Profile, text: str) -> None:
    """Print size and harm of every level of the codecs that use the profile."""
    from cachegen.held_out import HeldOutText, check_encoding, continuation_tokens

    token_ids = model.tokenize(text)[: min(_HELD_OUT_TOKENS, model.max_tokens or _HELD_OUT_TOKENS)]
    behind = continuation_tokens(model.max_tokens)
    if len(token_ids) <= behind:
        sys.stdout.write(f"no held-out check: the text gives {len(token_ids)} tokens, more than {behind} are needed\n")
        return
    encodings = _encodings(profile)
    rows: list[HeldOutRow] = []
    held_out = HeldOutText(model, token_ids)
    with StepView() as view:
        for encoding in encodings:
            rows.append(check_encoding(held_out, profile, encoding))
            view.step("check on text it did not see", len(rows), len(encodings))
    print_table(
        f"On {held_out.cache.num_tokens} tokens it did not see, and what follows them",
        ["encoding", "bits per element", "x smaller than fp16", "KL", "agreement", "perplexity change"],
        [_cells(row) for row in rows],
    )
    _warn(rows)


def _warn(rows: Sequence[HeldOutRow]) -> None:
    """Say so where the near-lossless level is not: the levels above it will not be worth what the documentation says.

    No more than that: the profile is sound, the table above says what each level does, and ``require_quality`` is there
    for those who must not store less than they promise.
    """
    from cachegen.held_out import NEAR_LOSSLESS, NEAR_LOSSLESS_KL, require_quality

    if finest := [row for row in rows if row.encoding == NEAR_LOSSLESS]:
        try:
            require_quality(finest, NEAR_LOSSLESS_KL)
        except QualityError as error:
            sys.stderr.write(
                f"warning: {error}; calibrate on longer texts, or on some that are like those to come (--texts)\n"
            )


def _encodings(profile: Profile) -> list[Encoding]:
    from cachegen.codecs import CODECS
    from cachegen.codecs.transform import TransformCodec

    refused = {TransformCodec.name} if isinstance(profile.tables.transform, str) else set()
    return [e for e in ENCODINGS if CODECS[e.codec].uses_tables and e.codec not in refused]


def _cells(row: HeldOutRow) -> Sequence[str]:
    return (
        str(row.encoding),
        f"{row.bits_per_element:.3f}",
        f"{row.ratio_fp16:.2f}",
        f"{row.kl:.5f}",
        f"{row.agreement:.3f}",
        f"{row.dppl:+.3f}",
    )
