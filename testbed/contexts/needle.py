"""Hard needles: one fact of several that look alike, hidden in Python's language reference, is asked for.

All needles have the same words and near-equal names, so that a model which remembers only that there was a needle, or
only the last one, gives a wrong answer. RULER calls it multi-key retrieval (Hsieh et al., COLM 2024, arXiv:2404.06654).
"""

import random

from testbed.contexts.base import ContextText, Task
from testbed.contexts.reference import reference_text

NEEDLES = 8
# Fewer than English has in a token with common tokenizers, so that no needle is cut off.
_CHARACTERS_PER_TOKEN = 3.3
_PLACES = ("Amber", "Birch", "Cedar", "Delta")


def needle_contexts(count: int, context_tokens: int, seed: int = 0) -> list[ContextText]:
    """Contexts with ``NEEDLES`` needles each, about a sixth shorter than ``context_tokens``.

    Parameters
    ----------
    seed : int
        Context ``i`` of a seed is the same however many there are.
    """
    return [_context(random.Random(f"needle/{seed}/{index}"), index, context_tokens) for index in range(count)]


def _context(chance: random.Random, index: int, context_tokens: int) -> ContextText:
    names = _similar_names(chance)
    codes = [str(code) for code in chance.sample(range(10_000, 100_000), NEEDLES)]
    needles = [f"The access code of depot {name} is {code}.\n" for name, code in zip(names, codes, strict=True)]
    length = max(1, round(context_tokens * _CHARACTERS_PER_TOKEN) - sum(map(len, needles)))
    asked = chance.randrange(NEEDLES)
    question = f"What is the access code of depot {names[asked]}? Answer with the number alone."
    return ContextText(
        name=f"needle-{index}",
        text=_hide(needles, _straw(chance, length), chance),
        question=f"\n\nQuestion: {question}\nAnswer:",
        task=Task((codes[asked],), "needle"),
    )


def _similar_names(chance: random.Random) -> list[str]:
    """One word with numbers of the same two digits, in both orders, and their neighbours."""
    word = chance.choice(_PLACES)
    tens, ones = chance.sample(range(1, 9), 2)
    numbers = {10 * tens + ones, 10 * ones + tens, 11 * tens, 11 * ones, 10 * tens + ones + 1, 10 * ones + tens + 1}
    others = [number for number in range(10, 100) if number not in numbers]
    chosen = [*sorted(numbers), *chance.sample(others, NEEDLES - len(numbers))]
    chance.shuffle(chosen)
    return [f"{word}-{number}" for number in chosen]


def _straw(chance: random.Random, length: int) -> list[str]:
    """Lines of the reference from a random place on."""
    book = reference_text()
    start = chance.randrange(len(book))
    return (book + "\n\n" + book)[start : start + length].splitlines(keepends=True)


def _hide(needles: list[str], lines: list[str], chance: random.Random) -> str:
    """Put each needle behind a line of its own part of the text."""
    parts = [lines[len(lines) * part // NEEDLES : len(lines) * (part + 1) // NEEDLES] for part in range(NEEDLES)]
    pieces = []
    for part, needle in zip(parts, needles, strict=True):
        place = chance.randint(0, len(part))
        # the text may begin or end within a line
        ends_line = place == 0 or part[place - 1].endswith("\n")
        pieces += [*part[:place], "" if ends_line else "\n", needle, *part[place:]]
    return "".join(pieces)
