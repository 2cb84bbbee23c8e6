"""Rows of a batch, whatever their lengths, get what each gets alone."""

import pytest
import torch
from families import SUPPORTED, WINDOW, context_of, letters, model_of
from tiny_models import VOCABULARY, random_tokens, tiny_gpt2, tiny_llama
from transformers import GPT2Config, GPT2LMHeadModel

from cachegen import (
    InvalidInputError,
    LanguageModel,
    MismatchError,
    UnsupportedModelError,
    calculate_kv,
    generate_with_kv,
)

# Longer than a sliding window, shorter, a single token; questions of other orders of length.
CONTEXTS, QUESTIONS = (3 * WINDOW + 12, WINDOW - 3, 41, 1), (3, 12, 1, 7)
GREEDY = {"max_new_tokens": 6, "do_sample": False}


def rows_of(model):
    """Caches and questions, each of other tokens."""
    caches = [calculate_kv(model, random_tokens(length, seed=row)) for row, length in enumerate(CONTEXTS)]
    return caches, [random_tokens(length, seed=10 + row) for row, length in enumerate(QUESTIONS)]


def spelling(model):
    """The same model with a tokenizer of one token a letter."""
    return LanguageModel(model.network, letters(), model.name)


def one_by_one(model, caches, questions, **options):
    return [generate_with_kv(model, *pair, **options) for pair in zip(caches, questions, strict=True)]


class Recorder:
    """A logits processor that changes nothing and keeps the scores."""

    def __init__(self):
        self.scores = []

    def __call__(self, _input_ids, scores):
        self.scores.append(scores.clone())
        return scores


@pytest.mark.parametrize("family", SUPPORTED)
def test_each_row_gets_the_tokens_and_the_logits_that_it_gets_alone(family):
    model, together, alone = model_of(family), Recorder(), [Recorder() for _ in CONTEXTS]
    caches, questions = rows_of(model)
    before = [(list(cache.token_ids), cache.chunk(0, cache.num_tokens)) for cache in caches]
    answers = generate_with_kv(model, caches, questions, logits_processor=[together], **GREEDY)

    for row, (cache, question) in enumerate(zip(caches, questions, strict=True)):
        own = generate_with_kv(model, cache, question, logits_processor=[alone[row]], **GREEDY)
        assert answers[row] == own
        scores = torch.stack(together.scores)[:, row]
        torch.testing.assert_close(scores, torch.stack(alone[row].scores)[:, 0], rtol=1e-3, atol=1e-3)
        assert (cache.token_ids, cache.past.get_seq_length()) == (before[row][0], CONTEXTS[row])
        assert torch.equal(cache.chunk(0, cache.num_tokens), before[row][1])


def test_one_context_serves_several_rows_and_a_text_is_a_question():
    model = model_of("llama")
    cache = calculate_kv(model, context_of(40))
    questions = ["What?", "And why is that?", "Who?"]
    answers = generate_with_kv(model, [cache] * 3, questions, **GREEDY)
    assert answers == one_by_one(model, [cache] * 3, questions, **GREEDY)
    assert len({tuple(answer.token_ids) for answer in answers}) > 1


def test_a_batch_of_one_row_is_the_row_alone():
    model = model_of("gpt2")
    cache = calculate_kv(model, context_of(20))
    assert generate_with_kv(model, [cache], ["Why?"], **GREEDY) == [generate_with_kv(model, cache, "Why?", **GREEDY)]


@pytest.mark.parametrize("listed", [False, True])
def test_a_row_ends_with_its_own_end_token(listed):
    model = model_of("llama")
    caches, questions = rows_of(model)
    free = one_by_one(model, caches, questions, **GREEDY)
    end = free[1].token_ids[2]
    options = {**GREEDY, "eos_token_id": [end] if listed else end}
    answers = generate_with_kv(model, caches, questions, **options)

    assert answers == one_by_one(model, caches, questions, **options)
    assert len(answers[1].token_ids) <= 3
    assert max(len(answer.token_ids) for answer in answers) > 3


def test_a_penalty_on_the_prompts_tokens_meets_no_padding():
    model = model_of("llama")
    caches, questions = rows_of(model)
    options = {**GREEDY, "repetition_penalty": 5.0}
    answers = generate_with_kv(model, caches, questions, **options)
    assert answers == one_by_one(model, caches, questions, **options)
    assert answers != generate_with_kv(model, caches, questions, **GREEDY)


def test_sampled_rows_are_those_of_generate_on_the_padded_batch_with_the_same_seed():
    model = model_of("llama")
    caches, questions = rows_of(model)
    options = {"max_new_tokens": 8, "do_sample": True, "top_k": 20, "temperature": 1.3}
    prompts = [[*cache.token_ids, *question] for cache, question in zip(caches, questions, strict=True)]
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    torch.manual_seed(5)
    plain = model.network.generate(ids, attention_mask=mask, **options)[:, longest:].tolist()
    torch.manual_seed(5)
    assert [answer.token_ids for answer in generate_with_kv(model, caches, questions, **options)] == plain
    torch.manual_seed(6)
    assert [answer.token_ids for answer in generate_with_kv(model, caches, questions, **options)] != plain


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral (sliding)", "bloom"])
def test_sampled_tokens_are_those_of_generate_on_the_whole_sequence_with_the_same_seed(family):
    model = model_of(family)
    cache, question = calculate_kv(model, context_of(40)), random_tokens(5, seed=9)
    ids = torch.tensor([[*cache.token_ids, *question]])
    options = {"max_new_tokens": 12, "do_sample": True, "top_p": 0.9}
    for seed in (1, 2):
        torch.manual_seed(seed)
        plain = model.network.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :]
        torch.manual_seed(seed)
        assert generate_with_kv(model, cache, question, **options).token_ids == plain.tolist()


class CountingByCache(GPT2LMHeadModel):
    """Positions follow from how many entries the cache has, as in models that take no position_ids."""

    def forward(self, input_ids, attention_mask=None, cache=None, use_cache=None, logits_to_keep=0, return_dict=None):
        return super().forward(
            input_ids,
            attention_mask=attention_mask,
            cache=cache,
            use_cache=use_cache,
            logits_to_keep=logits_to_keep,
            return_dict=return_dict,
        )


def test_a_model_that_padding_would_shift_is_refused_by_name():
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=24, n_layer=2, n_head=4, n_positions=128, initializer_range=0.5)
    model = LanguageModel(CountingByCache(config).eval(), letters(), "mine")
    caches, questions = rows_of(model)
    with pytest.raises(UnsupportedModelError, match=r"mine \(gpt2\): takes no position_ids and counts positions"):
        generate_with_kv(model, caches, questions, **GREEDY)
    assert len(one_by_one(model, caches, questions, **GREEDY)) == len(CONTEXTS)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_length": 100}, "max_length is 100, which a batch of different lengths cannot follow"),
        ({"min_length": 70}, "min_length is 70"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size is 2"),
        ({"stop_strings": "x"}, "stop_strings is 'x'"),
        ({"num_beams": 2}, "num_beams is 2; a KV cache holds one sequence"),
        ({"max_new_tokens": 300}, "63 tokens of context and question may grow to 363"),
        ({"nonsense": 1}, "generate with nonsense: .*not used by the model"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens asks for assisted generation"),
    ],
)
def test_options_that_a_batch_cannot_follow_are_refused_and_the_caches_left_as_they_were(options, text):
    model = model_of("llama")
    caches, questions = rows_of(model)
    with pytest.raises(InvalidInputError, match=text):
        generate_with_kv(model, caches, questions, **options)
    assert [cache.past.get_seq_length() for cache in caches] == list(CONTEXTS)


def test_settings_of_the_model_and_of_a_given_configuration_are_looked_at_too():
    model = spelling(tiny_llama())
    caches, questions = rows_of(model)
    settings = model.network.generation_config
    settings.no_repeat_ngram_size = 3
    with pytest.raises(InvalidInputError, match="no_repeat_ngram_size is 3"):
        generate_with_kv(model, caches, questions, **GREEDY)
    settings.no_repeat_ngram_size, settings.num_beams = None, 4
    for one_or_all in ((caches, questions), (caches[0], questions[0])):
        with pytest.raises(InvalidInputError, match="num_beams is 4"):
            generate_with_kv(model, *one_or_all, **GREEDY)
    settings.num_beams = 1
    given = type(settings)(max_new_tokens=3, do_sample=True, num_return_sequences=2)
    with pytest.raises(InvalidInputError, match="num_return_sequences is 2"):
        generate_with_kv(model, caches, questions, generation_config=given)


@pytest.mark.parametrize(("caches", "questions"), [(2, 1), (1, 2), (0, 0)])
def test_there_is_one_question_for_each_cache(caches, questions):
    model = model_of("llama")
    with pytest.raises(InvalidInputError, match=f"{caches} caches and {questions} questions"):
        generate_with_kv(model, [model.new_cache(1)] * caches, [[1]] * questions)


def test_one_text_is_not_the_questions_of_several_caches():
    model = model_of("llama")
    with pytest.raises(InvalidInputError, match="need a sequence of questions"):
        generate_with_kv(model, [model.new_cache(1)] * 2, "ab")


@pytest.mark.parametrize(
    ("question", "text"), [([], "row 1: .*at least one token"), ([1, 97], "row 1: token 11 has id 97")]
)
def test_a_bad_question_is_refused_by_its_row(question, text):
    model = model_of("llama")
    cache = calculate_kv(model, context_of(10))
    with pytest.raises(InvalidInputError, match=text):
        generate_with_kv(model, [cache, cache], [[1], question])


def test_another_models_cache_is_refused_in_a_batch():
    model = spelling(tiny_gpt2())
    with pytest.raises(MismatchError, match="the KV cache is of model"):
        generate_with_kv(model, [model.new_cache(1), tiny_llama().new_cache(1)], [[1], [1]])
