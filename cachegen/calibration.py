"""Make a model's profile: run it over texts, see what its KV cache looks like and what errors in it do."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from cachegen.cache_dir import cache_dir
from cachegen.calibration_texts import calibration_texts
from cachegen.codecs.rotary import Rotary
from cachegen.errors import FormatError, InvalidInputError, MismatchError, UnsupportedModelError
from cachegen.model import LanguageModel
from cachegen.model_probe import find_rotary
from cachegen.profile import PROFILE_SCHEMA, Profile, load_profile, save_profile
from cachegen.profile_builder import ProfileBuilder
from cachegen.query_moments import QueryMoments
from cachegen.sensitivity import measure_sensitivities

CALIBRATION_TOKENS_PER_TEXT = 2048
_SMALLEST_TEXT_TOKENS = 128
# Of the longest text, for measuring what noise does.
_SENSITIVITY_TOKENS = 1024

OnStep = Callable[[int, int], None]


def calibrate(model: LanguageModel, texts: Sequence[str], on_text: OnStep = lambda _done, _all: None) -> Profile:
    """Make a profile of a model from texts.

    Parameters
    ----------
    model : LanguageModel
        Whose cache will be coded.
    texts : sequence of str
        Of mixed kinds; the first 2,048 tokens of each are used.
    on_text : callable
        Called with (steps done, steps in all): a step for each text, then one for each layer's K and V, whose
        sensitivity is measured, then one for the fit.

    Raises
    ------
    InvalidInputError
        No text is as long as 128 tokens.
    """
    rotary = _rotary_or_refusal(model)
    steps = len(texts) + (0 if isinstance(rotary, str) else model.shape.rows) + 1
    builder = ProfileBuilder(model.shape, model.fingerprint, rotary)
    queries = None if isinstance(rotary, str) else QueryMoments(model, rotary)
    longest: list[int] = []
    for done, text in enumerate(texts, start=1):
        token_ids = model.tokenize(text)[: _longest(model)]
        if len(token_ids) >= _SMALLEST_TEXT_TOKENS:
            cache = model.new_cache(len(token_ids))
            with queries or nullcontext():
                model.prefill(cache, token_ids)
            builder.add(cache.chunk(0, len(token_ids)))
            longest = max(longest, token_ids, key=len)
        on_text(done, steps)
    if not longest:
        raise InvalidInputError(
            f"calibration needs a text of {_SMALLEST_TEXT_TOKENS} tokens at least; none of {len(texts)} is"
        )
    sigmas = builder.sigmas()
    if queries is None or sigmas is None:
        profile = builder.build()
    else:
        sensitivities = measure_sensitivities(
            model,
            longest[:_SENSITIVITY_TOKENS],
            sigmas,
            lambda done: on_text(len(texts) + done, steps),
        )
        profile = builder.build(queries.key_metrics(), sensitivities)
    on_text(steps, steps)
    return profile


def _rotary_or_refusal(model: LanguageModel) -> Rotary | str:
    try:
        return find_rotary(model)
    except UnsupportedModelError as error:
        return str(error)


def _longest(model: LanguageModel) -> int:
    return min(CALIBRATION_TOKENS_PER_TEXT, model.max_tokens or CALIBRATION_TOKENS_PER_TEXT)


def cached_profile(model: LanguageModel, on_text: OnStep = lambda _done, _all: None) -> Profile:
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
