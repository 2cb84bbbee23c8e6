"""What an inference host does, in one file: put a context into the store once, load it over HTTP, answer a question."""

import argparse
import sys
import time

from cachegen import (
    cached_profile,
    calculate_kv,
    calibration_texts,
    default_model_path,
    generate_with_kv,
    get_kv,
    load_model,
    store_kv,
)

QUESTION = "\n\nQuestion: What is described above? Answer in one sentence.\nAnswer:"


def main() -> int:
    """Run; print what was loaded, and the answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="folder that contexts are put into")
    parser.add_argument("--server", required=True, help="URL of the server that gives them out")
    parser.add_argument("--model", help="folder or hub name of a causal LM (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--encoding", default="cachegen-1", help="that it is stored in (default: %(default)s)")
    parser.add_argument("--context-tokens", type=int, default=512, help="of the context (default: %(default)s)")
    options = parser.parse_args()

    model = load_model(options.model or default_model_path())
    profile = cached_profile(model)
    token_ids = model.tokenize(calibration_texts()[0])[: options.context_tokens]
    cache = calculate_kv(model, token_ids, 512)
    manifest = store_kv(options.store, model, cache, [options.encoding], profile)
    size_bytes = sum(chunk.encodings[options.encoding] for chunk in manifest.chunks)

    started_s = time.perf_counter()
    loaded = get_kv(options.server, model, manifest.context_key, options.encoding, profile)
    spent_s = time.perf_counter() - started_s
    sys.stdout.write(
        f"{loaded.num_tokens} tokens loaded as {options.encoding}, {size_bytes} bytes, in {spent_s:.2f} s from "
        f"{options.server} on {model.device}\n"
    )
    sys.stdout.write(generate_with_kv(model, loaded, QUESTION, max_new_tokens=32, do_sample=False).text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
