"""What can be wrong with a rANS stream, as compiled kernels report it: a number for each row."""

from cachegen.errors import FormatError

SOUND, WORDS, STATES, ESCAPES = range(4)
_REASONS = {
    WORDS: "its words do not end where its symbols do",
    STATES: "a lane does not end in its start state",
    ESCAPES: "its escapes are not as many as it says",
}


def stream_error(name: str, fault: int) -> FormatError:
    """Error that names the stream and its fault."""
    return FormatError(f"rANS stream of {name}: {_REASONS[fault]}")
