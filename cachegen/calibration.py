"""Make the codec's offline tables for a model: run it over texts and count what its KV cache looks like."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence

from cachegen.cache_dir import cache_dir
from cachegen.errors import FormatError, InvalidInputError, MismatchError
from cachegen.model import LanguageModel
from cachegen.profile import PROFILE_SCHEMA, Profile, ProfileBuilder, load_profile, save_profile

CALIBRATION_TOKENS_PER_TEXT = 2048
_SMALLEST_TEXT_TOKENS = 128

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


def calibrate(
    model: LanguageModel, texts: Sequence[str], on_text: Callable[[int, int], None] = lambda _done, _all: None
) -> Profile:
    """Make a profile of a model from texts.

    Parameters
    ----------
    model : LanguageModel
        Whose cache will be coded.
    texts : sequence of str
        Of mixed kinds; the first 2,048 tokens of each are used.
    on_text : callable
        Called with (texts done, texts in all).

    Raises
    ------
    InvalidInputError
        No text is as long as 128 tokens.
    """
    builder = ProfileBuilder(model.shape, model.fingerprint)
    used = 0
    for done, text in enumerate(texts, start=1):
        token_ids = model.tokenize(text)[: _longest(model)]
        if len(token_ids) >= _SMALLEST_TEXT_TOKENS:
            cache = model.new_cache(len(token_ids))
            model.prefill(cache, token_ids)
            builder.add(cache.chunk(0, len(token_ids)))
            used += 1
        on_text(done, len(texts))
    if not used:
        raise InvalidInputError(
            f"calibration needs a text of {_SMALLEST_TEXT_TOKENS} tokens at least; none of {len(texts)} is"
        )
    return builder.build()


def _longest(model: LanguageModel) -> int:
    return min(CALIBRATION_TOKENS_PER_TEXT, model.max_tokens or CALIBRATION_TOKENS_PER_TEXT)


def cached_profile(model: LanguageModel, on_text: Callable[[int, int], None] = lambda _done, _all: None) -> Profile:
    """The model's profile from the cache folder, made from :func:`calibration_texts` where it is missing.

    A file that is damaged or of another release is made anew.
    """
    path = cache_dir() / "profiles" / f"{model.fingerprint.hex()}-{PROFILE_SCHEMA}.safetensors"
    if path.exists():
        try:
            profile = load_profile(path)
        except FormatError:
            pass  # replaced below; removed here, it would be missed by another process that has just seen it
        else:
            if profile.model_fingerprint != model.fingerprint:
                raise MismatchError(f"{path}: is the profile of {profile.model_fingerprint.hex()}")
            return profile
    profile = calibrate(model, calibration_texts(), on_text)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_profile(profile, path)
    return profile
