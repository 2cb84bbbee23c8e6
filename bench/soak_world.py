"""The world of a soak: a tiny random model, its contexts, a store that is served, written, evicted and broken.

``python -m bench.soak_world write|evict ROOT SEED`` is what the soak starts beside itself.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from cachegen import CachegenError, KVCache, LanguageModel, Profile, ProfileBuilder, calculate_kv, open_store, store_kv
from cachegen.stores.eviction import evict

ROOT = Path(__file__).resolve().parent.parent
LADDER = ("cachegen-0", "cachegen-2", "cachegen-4")
CHUNK_TOKENS, CONTEXTS, VOCABULARY = 16, 10, 97
# Of what all contexts take: eviction has to drop levels, and now and then whole contexts.
QUOTA_SHARE = 0.6


def make_model() -> LanguageModel:
    """Return the model, the same in every process."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=None,
    )
    return LanguageModel(LlamaForCausalLM(config).eval(), tokenizer=None, name="soak")


def make_profile(model: LanguageModel, text: str = "profile") -> Profile:
    """Return its profile, the same in every process; another one for another ``text``."""
    builder = ProfileBuilder(model.shape, model.fingerprint)
    for seed in range(4):
        builder.add(calculate_kv(model, _tokens(random.Random(f"{text}/{seed}"), 200)).chunk(0, 200))
    return builder.build()


def _tokens(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(1, VOCABULARY) for _ in range(count)]


def make_contexts(model: LanguageModel) -> list[KVCache]:
    """Return contexts of unlike lengths, every other one with the beginning of the one before it."""
    contexts: list[list[int]] = []
    for index in range(CONTEXTS):
        chance = random.Random(f"context/{index}")
        shared = contexts[-1][: 2 * CHUNK_TOKENS] if index % 2 else []
        contexts.append([*shared, *_tokens(chance, chance.randrange(40, 90))])
    return [calculate_kv(model, token_ids, CHUNK_TOKENS) for token_ids in contexts]


def make_foreign_chunks(model: LanguageModel, cache: KVCache) -> list[bytes]:
    """Return sound chunks of a context, coded with another profile than that of the soak."""
    url = "memory://soak-foreign"
    store_kv(url, model, cache, LADDER, make_profile(model, "foreign"), CHUNK_TOKENS)
    store = open_store(url)
    return [store.get(name) for name in store.names("chunks/")]


def store_bytes(root: Path) -> int:
    """Return the bytes of all objects."""
    return sum(entry.size_bytes for entry in open_store(str(root)).entries())


class Server:
    """The storage server, to be killed and stopped."""

    def __init__(self, root: Path) -> None:
        self._root, self._port = root, 0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "cachegen", "serve", "--root", str(self._root), "--port", str(self._port)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None  # a pipe was asked for
        ready = json.loads(self.process.stdout.readline())
        self._port, self.url = ready["port"], ready["url"]

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.communicate()

    def restart(self) -> None:
        """Kill it and start it on its port."""
        self.kill()
        self._start()


def start_beside(work: str, root: Path, seed: int) -> subprocess.Popen[bytes]:
    """Start a writer or the eviction; it ends when its input does, with status 0 if all went well."""
    command = [sys.executable, "-m", "bench.soak_world", work, str(root), str(seed)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def await_ready(process: subprocess.Popen[bytes]) -> None:
    """Wait until it has begun."""
    assert process.stdout is not None  # a pipe was asked for
    process.stdout.readline()


def _write(root: str, seed: int, ending: threading.Event) -> int:
    """Store contexts again and again; what others break or evict meanwhile may refuse one, by name."""
    model, chance, refused = make_model(), random.Random(f"writer/{seed}"), 0
    profile, contexts = make_profile(model), make_contexts(model)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not ending.wait(chance.uniform(0.05, 0.5)):
        try:
            store_kv(root, model, chance.choice(contexts), LADDER, profile, CHUNK_TOKENS)
        except CachegenError:
            refused += 1
    return refused


def _evict(root: str, quota_bytes: int, ending: threading.Event) -> int:
    dropped = 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not ending.wait(0.3):
        dropped += evict(open_store(root), quota_bytes).dropped_objects
    return dropped


def main() -> None:
    """Work until the input ends; then write how often a writer was refused, or how many objects were dropped."""
    work, root, number = sys.argv[1:]
    ending = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=await_end, daemon=True).start()
    count = {"write": _write, "evict": _evict}[work](root, int(number), ending)
    sys.stdout.write(f"{count}\n")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """Return how many descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names of descriptors that may be gone, not paths


def wait_a_moment() -> None:
    """Let what was closed be closed."""
    time.sleep(0.2)


if __name__ == "__main__":
    main()
