"""Python's language reference, which every Python ships: English that needs no download."""

from pydoc_data.topics import topics

from testbed.contexts.base import ContextText
from testbed.contexts.plain_text import cut_text


def reference_text() -> str:
    """The whole reference, topic by topic."""
    return "\n\n".join(topics[name] for name in sorted(topics))


def reference_contexts(count: int, context_tokens: int, _seed: int = 0) -> list[ContextText]:
    """Contexts spread evenly over the reference."""
    return cut_text("python-reference", reference_text(), count, context_tokens)
