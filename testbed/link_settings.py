"""What a link is asked to be, apart from the rate that its trace gives: one frozen, validated value."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cachegen import InvalidInputError

MAX_DELAY_MS = 1000.0
MAX_LOSS = 0.3  # beyond, TCP stands still and nothing can be measured
MAX_BURST_FRAMES = 1000.0
FRAME_BYTES = 1514
QUEUE_DISCIPLINES = ("bfifo", "codel", "fq_codel")


@dataclass(frozen=True)
class Way:
    """What happens to frames on one way of a link, behind its shaper.

    Parameters
    ----------
    delay_ms : float
        Propagation delay.
    jitter_ms : float
        Each frame's delay is drawn evenly from ``delay_ms`` ± this. Frames keep their order, so a dense flow is
        nearer to the upper end.
    loss : float
        Share of frames that are lost.
    loss_burst_frames : float
        Mean number of frames lost in a row (Gilbert's model); 1: each frame is lost or not, whatever became of the
        one before it.
    """

    delay_ms: float
    jitter_ms: float = 0.0
    loss: float = 0.0
    loss_burst_frames: float = 1.0

    @property
    def is_exact(self) -> bool:
        """Whether every frame arrives, after exactly the delay."""
        return not self.jitter_ms and not self.loss

    def loss_chances(self) -> tuple[float, float]:
        """Return the two chances of Gilbert's model per frame: that losing begins, and that it ends.

        Losing ends after ``loss_burst_frames`` on average, and the two together lose ``loss`` of all frames. Without
        bursts a frame's fate must not hang on the one before it: then the second chance is the share that arrives.
        """
        if self.loss_burst_frames == 1.0:
            return self.loss, 1.0 - self.loss
        ends = 1.0 / self.loss_burst_frames
        return self.loss * ends / (1.0 - self.loss), ends


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Settings of a link; *down* is the way that follows the trace, *up* the way back.

    Parameters
    ----------
    delay_ms, uplink_delay_ms : float
        One-way propagation delay; None: as down.
    jitter_ms : float
        Of the delay, both ways.
    loss, uplink_loss : float
        Share of frames lost behind the queue; None: as down.
    loss_burst_frames : float
        Mean number of frames lost in a row, both ways.
    queue_bytes : int
        Room of the queue in front of each shaped way.
    queue_discipline : str
        One of ``QUEUE_DISCIPLINES``; all but ``bfifo`` hang on the kernel.
    uplink_mbps : float or None
        Rate of the way back in Ethernet frames; None: not shaped.

    Raises
    ------
    InvalidInputError
        A value is out of range; the text names it.
    """

    delay_ms: float = 10.0
    uplink_delay_ms: float | None = None
    jitter_ms: float = 0.0
    loss: float = 0.0
    uplink_loss: float | None = None
    loss_burst_frames: float = 1.0
    queue_bytes: int = 384 * 1024
    queue_discipline: str = "bfifo"
    uplink_mbps: float | None = None

    def __post_init__(self) -> None:
        self._check("delay_ms", 0, MAX_DELAY_MS)
        self._check("uplink_delay_ms", 0, MAX_DELAY_MS)
        # a frame cannot arrive before it was sent
        shortest_ms = min(self.down.delay_ms, self.up.delay_ms)
        self._check("jitter_ms", 0, shortest_ms, f" ({shortest_ms:g} is the delay)")
        self._check("loss", 0, MAX_LOSS)
        self._check("uplink_loss", 0, MAX_LOSS)
        self._check("loss_burst_frames", 1, MAX_BURST_FRAMES)
        self._check("queue_bytes", 2 * FRAME_BYTES, 1 << 30, " (the least is two full frames)")
        self._check("uplink_mbps", 0.1, 100_000)
        if self.queue_discipline not in QUEUE_DISCIPLINES:
            known = ", ".join(QUEUE_DISCIPLINES)
            raise InvalidInputError(f"queue_discipline must be one of {known}, not {self.queue_discipline!r}")

    def _check(self, name: str, least: float, most: float, hint: str = "") -> None:
        value: Any = getattr(self, name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise InvalidInputError(f"{name} must be from {least:g} to {most:g}{hint}, not {value!r}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "LinkSettings":
        """Settings out of a run's configuration, which has one more word for the bursts; what it lacks is as usual."""
        names = {field.name: field.name for field in fields(cls)} | {"loss_burst_frames": "loss_burst"}
        return cls(**{name: config[key] for name, key in names.items() if key in config})

    @property
    def down(self) -> Way:
        """The way from the storage host to the inference host."""
        return Way(self.delay_ms, self.jitter_ms, self.loss, self.loss_burst_frames)

    @property
    def up(self) -> Way:
        """The way back."""
        delay_ms = self.delay_ms if self.uplink_delay_ms is None else self.uplink_delay_ms
        loss = self.loss if self.uplink_loss is None else self.uplink_loss
        return Way(delay_ms, self.jitter_ms, loss, self.loss_burst_frames)

    @property
    def rtt_ms(self) -> float:
        """Round trip of an idle link without jitter."""
        return self.down.delay_ms + self.up.delay_ms

    @property
    def counted_delay_s(self) -> float | None:
        """How long frames travel to where arriving bytes are counted: the receiver; None: not at all.

        Frames that are lost or held up on purpose say nothing of the rate, so on such a link bytes are counted where
        they leave the shaper.
        """
        return self.delay_ms / 1e3 if self.down.is_exact else None
