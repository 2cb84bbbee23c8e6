"""Colours, markers and dashes of every picture, so that a method looks the same on the page and on paper.

The colours of the methods differ in lightness too, and were checked under simulated protanopia, deuteranopia and
tritanopia; no picture tells things apart by colour alone.
"""

from dataclasses import dataclass

from testbed.metrics import STAGES


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn.

    Parameters
    ----------
    colour, dark_colour : str
        On white, and on a dark page.
    marker : str
        Matplotlib's letter: ``o s ^ D v P X *``.
    dash : str
        Lengths of strokes and gaps as SVG has them; empty for an unbroken line.
    """

    colour: str
    dark_colour: str
    marker: str
    dash: str


_STYLES = (
    MethodStyle("#0072b2", "#58b2ea", "o", ""),
    MethodStyle("#d0560a", "#ef7d38", "s", "6 3"),
    MethodStyle("#222222", "#eeeeee", "^", "2 2"),
    MethodStyle("#0f9680", "#2ec4a6", "D", "8 3 2 3"),
    MethodStyle("#b0429a", "#d977c4", "v", "4 2"),
    MethodStyle("#4f5a00", "#c9cf52", "P", "10 3"),
    MethodStyle("#232f7d", "#5f7df0", "X", "1 2"),
    MethodStyle("#7a2f1d", "#c98a76", "*", "6 2 1 2 1 2"),
)
STAGE_COLOURS = dict(
    zip(STAGES, ("#bbbbbb", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7"), strict=True),
)
# From the finest level to the coarsest, on white and on a dark page: the finest stands out most.
LEVEL_COLOURS = ("#08306b", "#0b4c93", "#1f6db3", "#4289c4", "#67a3d2", "#8dbde0", "#b0d2ec", "#cfe1f2")
DARK_LEVEL_COLOURS = ("#deebf7", "#c0daf0", "#9cc6e6", "#77afdb", "#5697cc", "#3d7fb8", "#2a689f", "#1f5486")


def method_style(place: int) -> MethodStyle:
    """Return the style of the method at a place of the run's list; colours repeat after eight, with other markers."""
    colours, shapes = _STYLES[place % len(_STYLES)], _STYLES[(place + place // len(_STYLES)) % len(_STYLES)]
    return MethodStyle(colours.colour, colours.dark_colour, shapes.marker, shapes.dash)


def level_shade(name: str) -> int:
    """Return the index into ``LEVEL_COLOURS`` for an encoding's name: its level, 0 where the name has none."""
    _, dash, level = name.rpartition("-")
    return min(int(level), len(LEVEL_COLOURS) - 1) if dash and level.isdecimal() else 0
