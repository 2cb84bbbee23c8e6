"""One encoding on one text: size, harm, seconds, memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cachegen.benchmark.peak_memory import Peak, decode_peak
from cachegen.benchmark.timing import timed
from cachegen.encoding import Encoding
from cachegen.held_out import HeldOutText
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import Profile, save_profile

# What a codec keeps for its profile is there once it has decoded so many tokens.
_FEW_TOKENS = 16


@dataclass(frozen=True)
class BenchRow:
    """One encoding on one text.

    Parameters
    ----------
    codec : str
    level : int or None
    bytes : int
        Of all containers of the context: headers, tables and everything else that is in them.
    bits_per_element : float
        The same, per element of the KV cache.
    ratio_fp16 : float
        How many times smaller than the cache in 16-bit elements.
    kl, agreement, dppl : float
        Of the predictions of the tokens behind the context, see ``HeldOutText`` and ``Quality``.
    encode_s, decode_s : float
        Seconds for all chunks of the context, one after the other: median of five passes.
    prefill_s : float
        Seconds for the model to prefill the same tokens, chunk by chunk: median of three passes.
    peak_bytes : int or None
        Peak extra memory of decoding the first chunk on the CPU, beyond its output, see ``peak_memory``.
    reasons : dict of str to str
        Why a field is None, by its name.
    """

    codec: str
    level: int | None
    bytes: int
    bits_per_element: float
    ratio_fp16: float
    kl: float
    agreement: float
    dppl: float
    encode_s: float
    decode_s: float
    prefill_s: float
    peak_bytes: int | None
    reasons: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """As a dict."""
        return asdict(self)


def measure_row(text: HeldOutText, profile: Profile, encoding: Encoding, prefill_s: float) -> BenchRow:
    """Measure an encoding.

    Raises
    ------
    UnsupportedModelError
        The codec cannot code this model.
    """
    chunks, identities = text.chunks(), text.identities(profile)

    def encode() -> list[bytes]:
        return text.encode(profile, encoding)

    def decode() -> list[torch.Tensor]:
        return [decode_chunk(data, profile, device=text.model.device).kv for data in containers]

    containers, encode_s = timed(encode)
    decoded, decode_s = timed(decode)
    judged = text.judge(encoding, sum(map(len, containers)), decoded)
    few_tokens = encode_chunk(chunks[0][:, :, :_FEW_TOKENS], encoding, identities[0], profile)
    peak = _peak(containers[0], few_tokens, profile)
    return BenchRow(
        codec=encoding.codec,
        level=encoding.level,
        bytes=judged.num_bytes,
        bits_per_element=judged.bits_per_element,
        ratio_fp16=judged.ratio_fp16,
        kl=judged.kl,
        agreement=judged.agreement,
        dppl=judged.dppl,
        encode_s=encode_s,
        decode_s=decode_s,
        prefill_s=prefill_s,
        peak_bytes=peak.num_bytes,
        reasons={} if peak.num_bytes is not None else {"peak_bytes": peak.reason},
    )


def _peak(chunk: bytes, few_tokens: bytes, profile: Profile) -> Peak:
    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("chunk", "few_tokens", "profile")]
        files[0].write_bytes(chunk)
        files[1].write_bytes(few_tokens)
        save_profile(profile, files[2])
        return decode_peak(*files)
