"""The secret that a storage server asks for and its clients show (RFC 6750): from a file or the environment.

Never from a command line, which every user of the machine can read.
"""

import os
import re
from pathlib import Path

from cachegen.errors import InvalidInputError
from cachegen.input_file import read_text

TOKEN_VARIABLE = "CACHEGEN_TOKEN"  # noqa: S105 - the variable's name, not what it holds

# A shorter one can be guessed; a longer one does not fit the header line that a server reads.
_MIN_CHARACTERS, _MAX_CHARACTERS = 16, 1024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def check_token(token: str, place: str) -> str:
    """Return the token.

    Raises
    ------
    InvalidInputError
        It is none: too short, too long, or with characters that no header carries. The message names ``place``,
        where it came from, and never the token.
    """
    if not _MIN_CHARACTERS <= len(token) <= _MAX_CHARACTERS or not _TOKEN.fullmatch(token):
        raise InvalidInputError(
            f"{place}: a token has {_MIN_CHARACTERS} to {_MAX_CHARACTERS} of the characters A-Z a-z 0-9 . _ ~ + / -"
        )
    return token


def token_from_file(path: Path) -> str:
    """Read the token that is all a file holds, but for space around it; InvalidInputError if it is none."""
    return check_token(read_text(path, 2 * _MAX_CHARACTERS).strip(), str(path))


def token_from_environment() -> str | None:
    """Return the token in ``CACHEGEN_TOKEN``, None where that is unset or empty; InvalidInputError if it is none."""
    token = os.environ.get(TOKEN_VARIABLE)
    return check_token(token, TOKEN_VARIABLE) if token else None
