"""``cachegen encode``: a text's KV cache, or a tensor's, to containers."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cachegen.commands.base import add_model, add_overwrite, add_profile, check_output, check_output_folder
from cachegen.commands.models import open_model, profile_of_model
from cachegen.commands.terminal import StepView
from cachegen.encoding import Encoding, parse_encoding
from cachegen.errors import InvalidInputError
from cachegen.input_file import read_text
from cachegen.whole_file import write_whole

if TYPE_CHECKING:
    from cachegen.model import LanguageModel
    from cachegen.profile import Profile

HELP = "encode the KV cache of a text, or a KV tensor of a file, into containers"
DESCRIPTION = (
    "Encode the KV cache of a text into a folder of containers, one for each chunk, or the tensor `kv` (layers, 2, "
    "tokens, KV heads, head dim) of a safetensors file into one container. An output appears whole or not at all."
)
_CHUNK_NAME = "chunk-{:04d}.kvc"
_CHUNK_NAMES = "chunk-*.kvc"
_CHUNK_TOKENS = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, metavar="FILE", help="text to run the model over")
    source.add_argument("--kv", type=Path, metavar="FILE", help="safetensors file with a chunk's tensor `kv`")
    parser.add_argument("--encoding", required=True, help="codec and level, such as cachegen-1")
    parser.add_argument(
        "-o", dest="output", type=Path, required=True, metavar="PATH", help="folder for --text, file for --kv"
    )
    parser.add_argument(
        "--chunk-tokens", type=int, metavar="N", help=f"tokens of a chunk of --text (default: {_CHUNK_TOKENS})"
    )
    parser.add_argument(
        "--first-token",
        type=int,
        metavar="N",
        help="position of the first token of --kv in its context (default: what the file says, else 0)",
    )
    parser.add_argument(
        "--tokens-behind",
        type=int,
        metavar="N",
        help="tokens of the context that follow those of --kv; transform codes its end more finely (default: unknown)",
    )
    add_model(parser)
    add_profile(parser)
    add_overwrite(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    encoding = parse_encoding(options.encoding)
    if options.text is not None:
        _encode_text(options, encoding)
    else:
        _encode_tensor(options, encoding)
    return 0


def _encode_text(options: argparse.Namespace, encoding: Encoding) -> None:
    from cachegen.api import calculate_kv
    from cachegen.chunking import PROFILE_HASH_BYTES
    from cachegen.pipeline import context_identities, encode_chunk

    for flag, value in (("--first-token", options.first_token), ("--tokens-behind", options.tokens_behind)):
        if value is not None:
            raise InvalidInputError(f"{flag} goes with --kv: a text is a context of its own")
    check_output_folder(options.output, _CHUNK_NAMES, overwrite=options.overwrite)
    chunk_tokens = _CHUNK_TOKENS if options.chunk_tokens is None else options.chunk_tokens
    if chunk_tokens < 1:
        raise InvalidInputError(f"--chunk-tokens is {chunk_tokens}, must be 1 at least")
    text = read_text(options.text)
    model = open_model(options.model)
    profile = _profile(model, encoding, options.profile)
    cache = calculate_kv(model, text, chunk_tokens)
    profile_hash = bytes(PROFILE_HASH_BYTES) if profile is None else profile.hash
    written: list[tuple[str, bytes]] = []
    elements_a_token = model.shape.rows * model.shape.channels
    for (first, end), identity in context_identities(cache.token_ids, chunk_tokens, model.fingerprint, profile_hash):
        data = encode_chunk(cache.chunk(first, end), encoding, identity, profile, cache.num_tokens - end)
        written.append((_CHUNK_NAME.format(identity.chunk_index), data))
        _report(f"{written[-1][0]}: tokens {first}..{end - 1}", len(data), (end - first) * elements_a_token)
    # again: what was put there meanwhile is not ours to remove
    check_output_folder(options.output, _CHUNK_NAMES, overwrite=options.overwrite)
    _write_folder(options.output, written)
    total = sum(len(data) for _, data in written)
    _report(f"{options.output}: {cache.num_tokens} tokens as {encoding}", total, cache.num_tokens * elements_a_token)


def _encode_tensor(options: argparse.Namespace, encoding: Encoding) -> None:
    from cachegen.kv_file import read_kv_file
    from cachegen.pipeline import encode_chunk
    from cachegen.profile import load_profile

    if options.model is not None:
        raise InvalidInputError("--model goes with --text: a tensor of a file needs no model")
    if options.chunk_tokens is not None:
        raise InvalidInputError("--chunk-tokens goes with --text: a tensor of a file is one chunk")
    check_output(options.output, overwrite=options.overwrite)
    profile = None if options.profile is None else load_profile(options.profile)
    source = read_kv_file(options.kv)
    if options.first_token is not None:
        source = replace(source, first_token=options.first_token)
    data = encode_chunk(source.kv, encoding, source.identity(profile), profile, options.tokens_behind)
    write_whole(options.output, data)
    _report(f"{options.output}: {source.kv.shape[2]} tokens as {encoding}", len(data), source.kv.numel())


def _profile(model: LanguageModel, encoding: Encoding, path: Path | None) -> Profile | None:
    """The profile to encode with; None, named by zeros, where none is given and the codec needs none."""
    from cachegen.codecs import CODECS
    from cachegen.codecs.transform import TransformCodec

    if path is None and not CODECS[encoding.codec].uses_tables:
        return None
    with StepView() as view:
        return profile_of_model(
            model,
            path,
            lambda done, total: view.step("calibrate", done, total),
            transform=encoding.codec == TransformCodec.name,
        )


def _write_folder(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Fill a folder out of sight, and give it its name, and the mode of one that is there, when it is complete."""
    target = path.absolute()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        made, replaced = Path(scratch) / "made", Path(scratch) / "replaced"
        made.mkdir()
        for name, data in files:
            write_whole(made / name, data)
        if target.exists():
            shutil.copymode(target, made)
            target.rename(replaced)
        made.rename(target)


def _report(what: str, num_bytes: int, num_elements: int) -> None:
    sys.stdout.write(f"{what}: {num_bytes:,} bytes, {8 * num_bytes / num_elements:.3f} bits per element\n")
