"""A plain text: cut into contexts of equal length, spread evenly over it."""

from testbed.contexts.base import DEFAULT_QUESTION, ContextText

# Long enough for any tokenizer: English has about four characters a token.
CHARACTERS_PER_TOKEN = 8


def cut_text(name: str, text: str, count: int, context_tokens: int) -> list[ContextText]:
    """Cut a text into ``count`` contexts, each beginning with a line; they overlap where the text is short."""
    length = context_tokens * CHARACTERS_PER_TOKEN
    starts = [index * len(text) // count for index in range(count)]
    # from the next line on; round the end of the text, so that the last one is as long as the rest
    starts = [text.find("\n", start) + 1 for start in starts]
    endless = text + "\n\n" + text[:length]
    return [
        ContextText(f"{name}-{index}", endless[start : start + length], DEFAULT_QUESTION)
        for index, start in enumerate(starts)
    ]
