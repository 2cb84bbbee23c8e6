"""What a load costs on this machine besides the network, and what a controller is so offered for each chunk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cachegen.controllers import ChunkOptions
from cachegen.manifest import Manifest
from cachegen.recompute_cost import RecomputeCost


@dataclass(frozen=True)
class LoadCosts:
    """What this machine needs for the parts that no network touches; measured, never assumed.

    Parameters
    ----------
    recompute : RecomputeCost
        Seconds of prefill by prefix and length. One of ``recompute_cost.IMPOSSIBLE_S`` or more: the context has no text
        that gives its KV, and nothing of it is ever recomputed.
    reserve_s : float
        Seconds between the last chunk's last byte and the first token: its decode and the question's prefill.
    decode_s_per_token : mapping
        Seconds to decode one token of context, by the encoding's name. One that is not named counts as nothing.
    """

    recompute: RecomputeCost
    reserve_s: float
    decode_s_per_token: Mapping[str, float] = field(default_factory=dict)

    def decode_s(self, encoding: str, num_tokens: int) -> float:
        """Return the seconds to decode a chunk."""
        return num_tokens * self.decode_s_per_token.get(encoding, 0.0)

    def options(self, manifest: Manifest, encodings: Sequence[str]) -> tuple[ChunkOptions, ...]:
        """Return what each chunk can come in, of these encodings (finest first), and at what cost."""
        return tuple(
            ChunkOptions(
                index=index,
                num_tokens=chunk.num_tokens,
                sizes_bytes={name: chunk.encodings[name] for name in encodings if name in chunk.encodings},
                recompute_s=self.recompute.predict(chunk.first_token, chunk.num_tokens),
                decode_s={name: self.decode_s(name, chunk.num_tokens) for name in encodings},
            )
            for index, chunk in enumerate(manifest.chunks)
        )
