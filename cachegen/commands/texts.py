"""The texts that commands run a model over: no more is read of them than has a use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cachegen.errors import InvalidInputError
from cachegen.input_file import read_text

if TYPE_CHECKING:
    from cachegen.model import LanguageModel

# No token that matters is longer than this: bounds what is read of a text of which so many tokens are used.
CHARACTERS_PER_TOKEN = 32


def held_out_tokens(model: LanguageModel, path: Path, context_tokens: int, note: Callable[[str], None]) -> list[int]:
    """Context and continuation of a text, cut to what the model takes.

    Parameters
    ----------
    context_tokens : int
        Length of the context that is asked for.
    note : callable
        Called with a sentence where the context is shorter, which says why.

    Returns
    -------
    list of int
        Token ids for :class:`cachegen.held_out.HeldOutText`.

    Raises
    ------
    InvalidInputError
        The file is no text, or nothing is left for a context.
    """
    from cachegen.held_out import continuation_tokens

    behind = continuation_tokens(model.max_tokens)
    allowed = context_tokens
    if model.max_tokens is not None and model.max_tokens - behind < context_tokens:
        allowed = model.max_tokens - behind
        note(
            f"{model.name}: holds {model.max_tokens} tokens, so at most {allowed} of context: {behind} are predicted "
            "behind it"
        )
    token_ids = model.tokenize(read_text(path, (allowed + behind) * CHARACTERS_PER_TOKEN))[: allowed + behind]
    if len(token_ids) <= behind:
        raise InvalidInputError(
            f"{path}: {len(token_ids)} tokens; more than {behind} are needed, since so many are predicted behind the "
            "context"
        )
    if len(token_ids) < allowed + behind:
        note(f"{path}: only {len(token_ids) - behind} tokens of context")
    return token_ids
