"""The name of an encoding: a codec and, where it has several, a level."""

from __future__ import annotations

from dataclasses import dataclass

from cachegen.errors import InvalidInputError, UnknownNameError

# Levels of each codec; 0 = one fixed quality, so that the codec's name alone is the encoding's.
CODEC_LEVELS: dict[str, int] = {
    "raw": 0,
    "quant8": 0,
    "quant4": 0,
    "quant3": 0,
    "cachegen": 5,
    "cachegen-repo": 3,
    "transform": 8,
}


@dataclass(frozen=True)
class Encoding:
    """A codec and its level (0 = finest); ``level`` is None for a codec that has only one.

    Raises
    ------
    UnknownNameError
        No such codec.
    InvalidInputError
        The codec has no such level.
    """

    codec: str
    level: int | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODEC_LEVELS:
            raise UnknownNameError(f"unknown codec {self.codec!r}; known: {', '.join(CODEC_LEVELS)}")
        num_levels = CODEC_LEVELS[self.codec]
        if num_levels == 0 and self.level is not None:
            raise InvalidInputError(f"codec {self.codec} has no levels, got level {self.level}")
        if num_levels and (self.level is None or not 0 <= self.level < num_levels):
            raise InvalidInputError(f"codec {self.codec} has levels 0..{num_levels - 1}, got {self.level}")

    def __str__(self) -> str:
        return self.codec if self.level is None else f"{self.codec}-{self.level}"


ENCODINGS: tuple[Encoding, ...] = tuple(
    Encoding(codec, level)
    for codec, num_levels in CODEC_LEVELS.items()
    for level in (range(num_levels) if num_levels else (None,))
)


def parse_encoding(text: str) -> Encoding:
    """Encoding of a name such as ``raw`` or ``cachegen-1``; UnknownNameError lists the known names."""
    for encoding in ENCODINGS:
        if str(encoding) == text:
            return encoding
    known = ", ".join(str(encoding) for encoding in ENCODINGS)
    raise UnknownNameError(f"unknown encoding {text!r}; known: {known}")
