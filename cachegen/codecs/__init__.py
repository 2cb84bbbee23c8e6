"""Registry of codecs by the name that encodings and containers use."""

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
        CachegenRepoCodec(),
        TransformCodec("numba"),
    )
}
