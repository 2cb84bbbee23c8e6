"""Memory that could not be had, whichever library asked for it, as one error that says how much it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from cachegen.errors import MemoryLimitError

# What torch says on a CPU, of Linux and of other systems; it has no type of its own for it.
_TORCH_WORDS = ("can't allocate memory", "not enough memory")


@contextmanager
def memory_for(purpose: str, num_bytes: int) -> Iterator[None]:
    """Do work that takes this much memory or somewhat more.

    A GPU's ``torch.OutOfMemoryError`` passes: it says how much was wanted, and callers make room and try again.

    Raises
    ------
    MemoryLimitError
        An allocation failed.
    """
    try:
        yield
    except MemoryLimitError:
        raise
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in _TORCH_WORDS):
            raise
        detail = f": {error}" if str(error) else ""
        raise MemoryLimitError(f"no memory for {purpose}, {num_bytes:,} bytes{detail}") from error
