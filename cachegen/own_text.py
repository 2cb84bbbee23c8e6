"""Text of a model's own: samples of what it expects to read, of more kinds than any files at hand."""

from __future__ import annotations

import torch

from cachegen.model import LanguageModel

# All openings are continued at once: one forward pass serves them all.
SAMPLES_PER_OPENING = 2
SAMPLE_TOKENS = 128
# Tokens of an opening that are kept, so that all samples are equally long.
_OPENING_TOKENS = 3

OPENINGS = (
    "Once upon a time there was",
    "Dear Sir or Madam, I am",
    "The history of the city",
    "# Getting started\n\nIn this",
    "Question: What is the",
    "User: Can you help me",
    "The patient was admitted with",
    "According to the new law",
    "def main():\n    parser =",
    "In mathematics, a group is",
    "Ingredients:\n- 2 cups",
    "Chapter 1\n\nIt was late",
    "Breaking news: The president",
    "I have always believed that",
    "The court held that the",
    "import numpy as np\n\nclass",
    "Abstract. We study the effect",
    "Dear diary, today I went",
    "To install the program, first",
    "Scientists have found that the",
    "The first time I saw",
    "Mr. President, members of the",
    "Table 1 shows the number",
    "She looked at him and",
    "This agreement is made between",
    "The best way to learn",
    "Translate the following sentence into",
    "Review: I bought this last",
    "In the second half, the",
    "The company said on Monday",
    "Step 1: Open the file",
    "There are three kinds of",
)


def num_own_texts(context_tokens: int) -> int:
    """Number of contexts that :func:`sample_own_texts` returns."""
    samples_per_context = max(1, context_tokens // (_OPENING_TOKENS + SAMPLE_TOKENS))
    return -(-len(OPENINGS) * SAMPLES_PER_OPENING // samples_per_context)


@torch.inference_mode()
def sample_own_texts(model: LanguageModel, context_tokens: int) -> list[list[int]]:
    """Contexts of sampled text, each of several samples one behind the other.

    Parameters
    ----------
    context_tokens : int
        Length of a context at most.

    Returns
    -------
    list of list of int
        Token ids, 8,384 in all unless the contexts are shorter than one sample.
    """
    starts = [model.tokenize(opening)[:_OPENING_TOKENS] for opening in OPENINGS for _ in range(SAMPLES_PER_OPENING)]
    shortest = min(len(start) for start in starts)
    ids = torch.tensor([start[:shortest] for start in starts], device=model.device)
    length = min(SAMPLE_TOKENS, context_tokens - shortest)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        samples = model.network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=length,
            min_new_tokens=length,
            pad_token_id=0,
        )
    # dealt out, so that the samples of one opening are in different contexts
    count = num_own_texts(context_tokens)
    return [samples[first::count].flatten().tolist() for first in range(count)]
