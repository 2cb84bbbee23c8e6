"""Matplotlib's markers as SVG paths round the origin, so that page and paper show the same ones."""

MARKER_PATHS = {
    "o": "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0-8.4 0z",
    "s": "M-3.8-3.8h7.6v7.6h-7.6z",
    "^": "M0-4.8L4.6 3.6H-4.6z",
    "D": "M0-5L5 0L0 5L-5 0z",
    "v": "M0 4.8L4.6-3.6H-4.6z",
    "P": "M-1.7-4.6h3.4v2.9h2.9v3.4h-2.9v2.9h-3.4v-2.9h-2.9v-3.4h2.9z",
    "X": "M-4.4-2.4L-2.4-4.4L0-2L2.4-4.4L4.4-2.4L2 0L4.4 2.4L2.4 4.4L0 2L-2.4 4.4L-4.4 2.4L-2 0z",
    "*": "M0-5.4L1.4-1.7L5.2-1.6L2.2.7L3.2 4.4L0 2.3L-3.2 4.4L-2.2.7L-5.2-1.6L-1.4-1.7z",
}
