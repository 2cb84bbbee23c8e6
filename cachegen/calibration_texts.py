"""The texts that a model is calibrated on where the user has none: what every Python installation brings along."""

import importlib
import inspect
from collections.abc import Iterator

# Modules whose documentation is long and about different things; every Python ships them.
_DOCUMENTED_MODULES = [
    "argparse",
    "asyncio.events",
    "calendar",
    "codecs",
    "collections",
    "configparser",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "doctest",
    "email.message",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "http.client",
    "inspect",
    "ipaddress",
    "itertools",
    "json",
    "logging",
    "mailbox",
    "optparse",
    "os",
    "pathlib",
    "pickle",
    "pickletools",
    "plistlib",
    "random",
    "re",
    "shutil",
    "smtplib",
    "socket",
    "statistics",
    "string",
    "subprocess",
    "tarfile",
    "tempfile",
    "textwrap",
    "threading",
    "timeit",
    "tokenize",
    "typing",
    "unittest",
    "urllib.request",
    "uuid",
    "weakref",
    "xml.dom.minidom",
    "zipfile",
]
_DEFAULT_TEXTS = 6


def calibration_texts() -> list[str]:
    """Six texts made of the documentation strings of Python's own library, about 2,000 tokens or more each.

    They share no source with the contexts that the testbed measures on (Python's language reference).
    """
    documents = [text for name in _DOCUMENTED_MODULES for text in _documentation(name) if text]
    # Dealt out like cards, so that each text mixes subjects.
    return ["\n\n".join(documents[start::_DEFAULT_TEXTS]) for start in range(_DEFAULT_TEXTS)]


def _documentation(module_name: str) -> Iterator[str]:
    """Docstrings of a module and of its public classes and functions, inherited ones left out."""
    module = importlib.import_module(module_name)
    yield inspect.cleandoc(module.__doc__ or "")
    for name, member in sorted(vars(module).items()):
        is_own = (inspect.isclass(member) or inspect.isfunction(member)) and member.__module__ == module_name
        if is_own and not name.startswith("_"):
            text = vars(member).get("__doc__") if inspect.isclass(member) else member.__doc__
            yield inspect.cleandoc(text or "")
