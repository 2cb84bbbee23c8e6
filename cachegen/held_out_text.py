"""The text that a profile is checked on where the user has none."""

from pydoc_data.topics import topics


def held_out_text() -> str:
    """Python's language reference, which every Python ships, from its middle on: no source of the calibration texts."""
    book = "\n\n".join(topics[name] for name in sorted(topics))
    return book[book.find("\n", len(book) // 2) + 1 :]
