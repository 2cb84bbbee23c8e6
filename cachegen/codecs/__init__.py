"""Registry of codecs by the name that encodings and containers use."""

from importlib.util import find_spec

import torch

from cachegen.codecs.base import Codec
from cachegen.codecs.cachegen import CachegenCodec
from cachegen.codecs.cachegen_repo import CachegenRepoCodec
from cachegen.codecs.quantize import QuantizeCodec
from cachegen.codecs.raw import RawCodec
from cachegen.codecs.transform import TransformCodec

CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        RawCodec(),
        QuantizeCodec(8),
        QuantizeCodec(4),
        QuantizeCodec(3),
        CachegenCodec("numba"),
        CachegenRepoCodec("numba"),
        TransformCodec("numba"),
    )
}
# Those whose kernels run on a GPU too.
GPU_CODECS: dict[str, Codec] = {codec.name: codec for codec in (CachegenCodec("triton"), TransformCodec("triton"))}


def decoder_for(name: str, device: torch.device) -> Codec:
    """The codec that decodes what goes to a device: on the device itself, where that is a GPU it has kernels for."""
    if device.type == "cuda" and name in GPU_CODECS and find_spec("triton") is not None:
        return GPU_CODECS[name]
    return CODECS[name]
