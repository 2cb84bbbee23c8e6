"""``cachegen decode``: a container to a tensor."""

import argparse
import sys
from pathlib import Path

from cachegen.commands.base import add_overwrite, add_profile, check_output
from cachegen.commands.models import profile_of_chunk
from cachegen.errors import CachegenError, InvalidInputError
from cachegen.input_file import read_bytes

HELP = "decode a container into a KV tensor"
DESCRIPTION = (
    "Decode a container into the tensor `kv` of a safetensors file, whose metadata says which chunk it is. The output "
    "appears whole or not at all."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("file", type=Path, metavar="FILE", help="container")
    parser.add_argument("-o", dest="output", type=Path, required=True, metavar="FILE", help="safetensors file")
    add_profile(parser)
    add_overwrite(parser)


def run(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.codecs import CODECS
    from cachegen.container import MAX_CONTAINER_BYTES, unpack
    from cachegen.kv_file import write_kv_file
    from cachegen.pipeline import decode_chunk

    check_output(options.output, overwrite=options.overwrite)
    data = read_bytes(options.file, MAX_CONTAINER_BYTES)
    try:
        container = unpack(data)
        profile = None
        if CODECS[container.encoding.codec].uses_tables:
            profile = profile_of_chunk(container.identity, options.profile)
            if profile is None:
                raise InvalidInputError(
                    f"needs profile {container.identity.profile_hash.hex()}, which is not in the cache folder; "
                    "--profile names it"
                )
        chunk = decode_chunk(data, profile)
    except CachegenError as error:
        raise type(error)(f"{options.file}: {error}") from error
    write_kv_file(options.output, chunk.kv, chunk.identity, str(chunk.encoding))
    shape = " x ".join(map(str, chunk.kv.shape))
    dtype = container.layout.dtype.name
    sys.stdout.write(f"{options.output}: {shape} {dtype}, decoded from {chunk.encoding}, {len(data):,} bytes\n")
    return 0
