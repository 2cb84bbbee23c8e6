"""``cachegen inspect``: what a container is, and whether it is sound."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cachegen.commands.base import add_profile
from cachegen.commands.models import profile_of_chunk
from cachegen.input_file import read_bytes

if TYPE_CHECKING:
    from cachegen.inspection import Inspection

HELP = "explain a container: codec, shape, sections, sizes, identity, and the outcome of every check"
DESCRIPTION = (
    "Explain a container: codec, level, shape, sections, sizes, identity, and the outcome of every check. A damaged "
    "one is explained as far as possible, with exit status 2."
)
_DAMAGED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("file", type=Path, metavar="FILE", help="container")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    add_profile(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.container import MAX_CONTAINER_BYTES
    from cachegen.inspection import inspect_container

    data = read_bytes(options.file, MAX_CONTAINER_BYTES)
    found = inspect_container(data, lambda identity: profile_of_chunk(identity, options.profile))
    if options.json:
        lines = iter([json.dumps({"file": str(options.file)} | found.to_json(), indent=2)])
    else:
        lines = _explain(str(options.file), found)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return _DAMAGED if found.is_damaged else 0


def _explain(name: str, found: Inspection) -> Iterator[str]:
    yield f"{name}: {found.num_bytes:,} bytes" + (", DAMAGED" if found.is_damaged else "")
    if not found.header_is_sound and found.encoding is not None:
        yield "the header's checksum does not hold: what follows is what it says, for what that is worth"
    yield from _explain_meaning(found)
    if found.sections:
        yield "sections"
    for section in found.sections:
        bits = "" if section.bits_per_element is None else f"  {section.bits_per_element:8.4f} bits per element"
        yield (f"  {section.id:>3}  {section.name:<20}  {section.num_bytes:>12,} bytes at {section.offset:>10,}{bits}")
    yield "checks"
    for check in found.checks:
        yield f"  {check.outcome:<7}  {check.name}" + (f": {check.detail}" if check.detail else "")


def _explain_meaning(found: Inspection) -> Iterator[str]:
    encoding, layout, identity, bits = found.encoding, found.layout, found.identity, found.bits_per_element
    if encoding is None or layout is None or identity is None or bits is None:
        return
    shape = layout.shape
    level = "" if encoding.level is None else f", level {encoding.level}"
    last_token = identity.first_token + layout.num_tokens - 1
    facts = {
        "codec": f"{encoding.codec}{level}",
        "shape": f"{shape.num_layers} layers, {shape.num_kv_heads} KV heads, head dim {shape.head_dim}",
        "dtype": layout.dtype.name,
        "tokens": f"{layout.num_tokens}, at {identity.first_token}..{last_token} of the context",
        "chunk": f"{identity.chunk_index} of the context",
        "size": f"{bits:.4f} bits per element, {16 / bits:.2f} times smaller than fp16",
        "model": identity.model_fingerprint.hex() if any(identity.model_fingerprint) else "unknown",
        "profile": identity.profile_hash.hex() if any(identity.profile_hash) else "none",
        "key": identity.chunk_key.hex(),
    }
    for name, fact in facts.items():
        yield f"  {name:<8} {fact}"
