"""Make a model's profile: run it over texts, see what its KV cache looks like and what errors in it do."""

from collections.abc import Callable, Sequence

import torch

from cachegen.calibration_texts import calibration_texts
from cachegen.errors import FormatError, InvalidInputError, MismatchError, UnsupportedModelError
from cachegen.fisher import FisherInformation
from cachegen.model import LanguageModel
from cachegen.model_probe import find_rotary
from cachegen.own_text import num_own_texts, sample_own_texts
from cachegen.profile import Profile, load_profile, save_profile
from cachegen.profile_builder import ProfileBuilder
from cachegen.profile_cache import profile_path
from cachegen.token_features import token_features

CALIBRATION_TOKENS_PER_TEXT = 2048
_SMALLEST_TEXT_TOKENS = 128

_WITHOUT_TRANSFORM = "this profile was made without it; calibrate and cached_profile take transform=True"

OnStep = Callable[[int, int], None]


def calibrate(
    model: LanguageModel,
    texts: Sequence[str],
    on_text: OnStep = lambda _done, _all: None,
    *,
    transform: bool = False,
) -> Profile:
    """Make a profile of a model from texts and, for ``transform``, from what the model itself writes.

    Parameters
    ----------
    model : LanguageModel
        Whose cache will be coded.
    texts : sequence of str
        Of mixed kinds; the first 2,048 tokens of each are used.
    on_text : callable
        Called with (steps done, steps in all). A step is a text that is run; for ``transform`` there are the model's
        own texts too, and the fit.
    transform : bool
        Whether the profile is to serve the ``transform`` codec, which takes several times as long. Where the model's
        keys turn in no known way, it will not serve it all the same.

    Raises
    ------
    InvalidInputError
        No text is as long as 128 tokens, or the model holds fewer.
    """
    contexts = calibration_contexts(model, texts)
    if not transform:
        return _calibrate_tables(model, contexts, _WITHOUT_TRANSFORM, on_text)
    try:
        rotary = find_rotary(model)
    except UnsupportedModelError as error:
        return _calibrate_tables(model, contexts, str(error), on_text)
    progress = _Progress(on_text, len(contexts) + 1 + num_own_texts(longest_context(model)) + 1)
    own = sample_own_texts(model, longest_context(model))
    progress.step()
    builder = ProfileBuilder(model.shape, model.fingerprint, rotary, token_features(model))
    fisher = FisherInformation(model, rotary)
    for token_ids in (*contexts, *own):
        kv = prefilled_kv(model, token_ids)
        builder.add(kv, token_ids)
        fisher.add(kv, token_ids)
        progress.step()
    profile = builder.build(fisher.blocks())
    progress.step()
    return profile


def _calibrate_tables(model: LanguageModel, contexts: Sequence[list[int]], refusal: str, on_text: OnStep) -> Profile:
    """Profile without the transform, for the other codecs; ``refusal`` says why it has none."""
    builder = ProfileBuilder(model.shape, model.fingerprint, refusal)
    for done, token_ids in enumerate(contexts, start=1):
        builder.add(prefilled_kv(model, token_ids))
        on_text(done, len(contexts))
    return builder.build()


def calibration_contexts(model: LanguageModel, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of the texts that are long enough, each cut to what calibration uses; see :func:`calibrate`."""
    tokenized = [model.tokenize(text)[: longest_context(model)] for text in texts]
    contexts = [token_ids for token_ids in tokenized if len(token_ids) >= _SMALLEST_TEXT_TOKENS]
    if model.max_tokens is not None and model.max_tokens < _SMALLEST_TEXT_TOKENS:
        raise InvalidInputError(
            f"calibration needs {_SMALLEST_TEXT_TOKENS} tokens of a text at least; {model.name} holds "
            f"{model.max_tokens} in all"
        )
    if not contexts:
        raise InvalidInputError(
            f"calibration needs a text of {_SMALLEST_TEXT_TOKENS} tokens at least; none of {len(texts)} is"
        )
    return contexts


def prefilled_kv(model: LanguageModel, token_ids: Sequence[int]) -> torch.Tensor:
    """Chunk tensor of a whole context, run through the model."""
    cache = model.new_cache(len(token_ids))
    model.prefill(cache, token_ids)
    return cache.chunk(0, len(token_ids))


def longest_context(model: LanguageModel) -> int:
    """Tokens of a text that calibration uses at most."""
    return min(CALIBRATION_TOKENS_PER_TEXT, model.max_tokens or CALIBRATION_TOKENS_PER_TEXT)


class _Progress:
    """Counts steps for a callback that wants to know how many there are."""

    def __init__(self, on_step: OnStep, total: int) -> None:
        self._on_step, self._done, self._total = on_step, 0, total

    def step(self) -> None:
        self._done += 1
        self._on_step(self._done, self._total)


def cached_profile(
    model: LanguageModel, on_text: OnStep = lambda _done, _all: None, *, transform: bool = False
) -> Profile:
    """The model's profile from the cache folder, made from :func:`calibration_texts` where it is missing.

    A file that is damaged or of another release is made anew. ``transform`` as in :func:`calibrate`: profiles with and
    without it are kept apart, and chunks of one do not decode with the other.

    Raises
    ------
    MismatchError
        The file at the place of this model's profile is another model's.
    """
    path = profile_path(model.fingerprint, transform=transform)
    if path.exists():
        try:
            profile = load_profile(path)
        except FormatError:
            pass  # replaced below; removed here, it would be missed by another process that has just seen it
        else:
            if profile.model_fingerprint != model.fingerprint:
                raise MismatchError(f"{path}: is the profile of {profile.model_fingerprint.hex()}")
            return profile
    profile = calibrate(model, calibration_texts(), on_text, transform=transform)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_profile(profile, path)
    return profile
