"""What the virtual tier takes for given: sizes, quality and times, measured once on a real machine and kept in a file.

``python -m testbed.virtual_costs RESULTS -o FILE`` makes the file out of ``docs/results.json`` (every encoding's size,
quality and decoding time on one held-out text) and a measurement of prefill by prefix and length on this machine.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cachegen import (
    CachegenError,
    ChunkOptions,
    InvalidInputError,
    RecomputeCost,
    calibration_texts,
    default_model_path,
    describe_environment,
    load_model,
    measure_recompute,
)

SCHEMA = 1
DEFAULT_PATH = Path(__file__).with_name("virtual_costs.json")


@dataclass(frozen=True)
class EncodingCosts:
    """Of one encoding, for each token of context."""

    bytes_per_token: float
    decode_s_per_token: float
    kl: float
    agreement: float


@dataclass(frozen=True)
class MeasuredCosts:
    """Of one model on one machine.

    Parameters
    ----------
    model : str
        Its name.
    recompute : RecomputeCost
        Seconds of prefill by prefix and length.
    question_tokens : int
        Tokens of the question that is prefilled behind the context.
    encodings : mapping
        Name to its costs.
    provenance : mapping
        Where and when the figures were measured.
    """

    model: str
    recompute: RecomputeCost
    question_tokens: int
    encodings: dict[str, EncodingCosts]
    provenance: dict[str, Any]

    def chunks(self, context_tokens: int, chunk_tokens: int, encodings: Sequence[str]) -> tuple[ChunkOptions, ...]:
        """The chunks of a context, as a controller sees them.

        Raises
        ------
        InvalidInputError
            An encoding was not measured, or the chunks have no tokens.
        """
        if chunk_tokens < 1:
            raise InvalidInputError(f"a chunk has at least 1 token, not {chunk_tokens}")
        if missing := [name for name in encodings if name not in self.encodings]:
            raise InvalidInputError(f"no costs of encoding {missing[0]}; there are {', '.join(self.encodings)}")
        chunks = []
        for index, first in enumerate(range(0, context_tokens, chunk_tokens)):
            tokens = min(chunk_tokens, context_tokens - first)
            sizes = {name: round(tokens * self.encodings[name].bytes_per_token) for name in encodings}
            decode_s = {name: self.decode_s(name, tokens) for name in encodings}
            chunks.append(ChunkOptions(index, tokens, sizes, self.recompute.predict(first, tokens), decode_s))
        return tuple(chunks)

    def decode_s(self, encoding: str, num_tokens: int) -> float:
        """Seconds to decode a chunk."""
        return num_tokens * self.encodings[encoding].decode_s_per_token

    def question_s(self, context_tokens: int) -> float:
        """Seconds to prefill the question behind a context."""
        return self.recompute.predict(context_tokens, self.question_tokens)

    def text_s(self, context_tokens: int, chunk_tokens: int) -> float:
        """Seconds to recompute a context and its question, without any network."""
        recompute_s = sum(chunk.recompute_s for chunk in self.chunks(context_tokens, chunk_tokens, ()))
        return recompute_s + self.question_s(context_tokens)


def load_costs(path: Path = DEFAULT_PATH) -> MeasuredCosts:
    """Read a file of costs.

    Raises
    ------
    InvalidInputError
        It is none; the text names file and field.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise InvalidInputError(f"{path}: schema is {document['schema']!r}, this release reads {SCHEMA}")
        return MeasuredCosts(
            model=document["model"],
            recompute=RecomputeCost(**document["recompute"]),
            question_tokens=document["question_tokens"],
            encodings={name: EncodingCosts(**figures) for name, figures in document["encodings"].items()},
            provenance=document["provenance"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path}: no file of costs: {type(error).__name__}: {error}") from error


def encoding_costs(results: dict[str, Any]) -> dict[str, EncodingCosts]:
    """Costs of each encoding out of the rows of ``docs/results.json``."""
    tokens = results["tokens"]
    return {
        row["codec"] if row["level"] is None else f"{row['codec']}-{row['level']}": EncodingCosts(
            bytes_per_token=row["bytes"] / tokens,
            decode_s_per_token=row["decode_s"] / tokens,
            kl=row["kl"],
            agreement=row["agreement"],
        )
        for row in results["rows"]
    }


def measure(results_path: Path, context_tokens: int, chunk_tokens: int, question_tokens: int) -> dict[str, Any]:
    """Measure prefill on this machine, and join it with the results of the encodings."""
    results = json.loads(results_path.read_text(encoding="utf-8"))
    model = load_model(default_model_path())
    token_ids = [token for text in calibration_texts() for token in model.tokenize(text)][:context_tokens]
    measure_recompute(model, token_ids[: 2 * chunk_tokens], chunk_tokens)  # the first pass is slower than the rest
    recompute = measure_recompute(model, token_ids, chunk_tokens)
    return {
        "schema": SCHEMA,
        "model": results["model"],
        "recompute": asdict(recompute),
        "question_tokens": question_tokens,
        "encodings": {name: asdict(costs) for name, costs in encoding_costs(results).items()},
        "provenance": {
            "prefill": {"dtype": str(model.dtype).removeprefix("torch."), "context_tokens": len(token_ids)},
            "results": {key: results[key] for key in ("text", "tokens", "chunk_tokens", "git", "host")},
            "environment": describe_environment(
                ["python", "-m", "testbed.virtual_costs", *sys.argv[1:]], ("torch", "transformers")
            ),
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m testbed.virtual_costs", description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, metavar="RESULTS", help="docs/results.json of this machine")
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT_PATH, metavar="FILE")
    parser.add_argument("--context-tokens", type=int, default=8000)
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--question-tokens", type=int, default=16)
    options = parser.parse_args(arguments)
    try:
        document = measure(options.results, options.context_tokens, options.chunk_tokens, options.question_tokens)
        options.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except (CachegenError, OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"virtual_costs: {type(error).__name__}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
