"""A soak: ``make soak REQUESTS=1000``. Requests against a real server, beside writers, eviction and random faults.

Each answer is compared with that of the context put together from undamaged chunks at the levels that the load says it
used. A request that is not done in time is stuck. Memory, descriptors, threads and tasks are looked at throughout.
What was found is printed and written to ``runs/soak.json``. Exit status 1: a wrong token, a stuck request, an
unexpected failure, or a leak.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.clean_assembly import CleanContext
from bench.soak_faults import Faults
from bench.soak_world import (
    CHUNK_TOKENS,
    LADDER,
    QUOTA_SHARE,
    ROOT,
    Server,
    await_ready,
    make_contexts,
    make_foreign_chunks,
    make_model,
    make_profile,
    open_files,
    resident_bytes,
    start_beside,
    store_bytes,
    wait_a_moment,
)
from cachegen import (
    CachegenError,
    ContextLoader,
    HttpSource,
    LoadCosts,
    LoadLimits,
    RecomputeCost,
    StageClock,
    make_controller,
    store_kv,
)

CONTROLLERS = {"text": (), f"fixed:{LADDER[-1]}": LADDER[-1:], "paper": LADDER, "meet": LADDER}
AT_ONCE, NEW_TOKENS, QUESTION = 16, 4, (5, 17, 42)
SLO_S, PATIENCE_S, SILENCE_S = 1.0, 1.0, 1.0
# deadline and patience, and what computing takes on a machine that does everything at once
STUCK_S = 60.0
RESULT = ROOT / "runs" / "soak.json"
# Between the first and the last third of the looks, after a fifth of the requests for warming up.
ALLOWED = {"rss_bytes": 48 << 20, "descriptors": 8, "threads": 4, "tasks": 0}
LOOKS = 30


@dataclass
class Found:
    """What a soak has seen."""

    outcomes: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    looks: list[dict[str, int]] = field(default_factory=list)

    def growth(self) -> dict[str, int]:
        """Return by how much each figure grew from the first third of the looks to the last, by their medians."""
        looks = self.looks[len(self.looks) // 5 :]
        third = max(1, len(looks) // 3)
        return {
            name: round(median(look[name] for look in looks[-third:]) - median(look[name] for look in looks[:third]))
            for name in ALLOWED
        }


class Soak:
    """The requests of a soak.

    Parameters
    ----------
    root : Path
        For the store; empty.
    requests, seed : int
        How many, and of what is random.
    """

    def __init__(self, root: Path, requests: int, seed: int) -> None:
        self._root, self._requests, self._seed = root, requests, seed
        self._model = make_model()
        self._profile = make_profile(self._model)
        self._contexts = []
        caches = make_contexts(self._model)
        self.foreign = make_foreign_chunks(self._model, caches[0])
        for cache in caches:
            manifest = store_kv(str(root), self._model, cache, LADDER, self._profile, CHUNK_TOKENS)
            clean = CleanContext(self._model, self._profile, cache, manifest)
            self._contexts.append((manifest.context_key, list(cache.token_ids), clean))
        self.found = Found()

    async def run(self, url: str) -> None:
        """Serve all requests, some at once; look for leaks between batches."""
        batch = max(AT_ONCE, self._requests // LOOKS)
        for first in range(0, self._requests, batch):
            turns = asyncio.Semaphore(AT_ONCE)
            source = HttpSource(url, SILENCE_S)
            try:
                await asyncio.gather(
                    *(self._serve(index, source, turns) for index in range(first, min(first + batch, self._requests)))
                )
            finally:
                await source.close()
            await self._look()

    async def _serve(self, index: int, source: HttpSource, turns: asyncio.Semaphore) -> None:
        chance = random.Random(f"request/{self._seed}/{index}")
        key, token_ids, clean = chance.choice(self._contexts)
        spec = chance.choice(list(CONTROLLERS))
        # every fifth knows only the key, and may fail by name where the index is damaged or evicted
        has_tokens = index % 5 != 0
        async with turns:
            clock = StageClock(time.monotonic())
            loader = ContextLoader(
                self._model,
                self._profile,
                source,
                LoadCosts(RecomputeCost(0.3, 0.0, 0.0), reserve_s=0.0),
                self._count_event,
                LoadLimits(patience_s=PATIENCE_S),
            )
            try:
                async with asyncio.timeout(STUCK_S):
                    loaded = await loader.load(
                        key,
                        make_controller(spec, CONTROLLERS[spec]),
                        CONTROLLERS[spec],
                        SLO_S,
                        clock,
                        token_ids=token_ids if has_tokens else None,
                    )
            except TimeoutError:
                self._note_bad("stuck", f"request {index} ({spec}) was not done after {STUCK_S} s")
                return
            except CachegenError as error:
                if has_tokens:
                    self._note_bad("failed", f"request {index} ({spec}): {type(error).__name__}: {error}")
                else:
                    self.found.outcomes[f"no index: {type(error).__name__}"] += 1
                return
            self.found.longest_s = max(self.found.longest_s, clock.elapsed_s())
            answer = self._model.generate(loaded.cache, QUESTION, max_new_tokens=NEW_TOKENS, do_sample=False)
            if loaded.cache.token_ids != token_ids or answer != clean.answer(
                loaded.chunk_sources, QUESTION, NEW_TOKENS
            ):
                self._note_bad("wrong", f"request {index} ({spec}): {answer} from {loaded.chunk_sources}")
            else:
                self.found.outcomes["right"] += 1
            self.found.sources.update(loaded.chunk_sources)

    def _count_event(self, event: str, **_fields: object) -> None:
        self.found.events[event] += 1

    def _note_bad(self, outcome: str, text: str) -> None:
        self.found.outcomes[outcome] += 1
        self.found.bad.append(text)

    async def _look(self) -> None:
        gc.collect()
        await asyncio.sleep(0.05)
        self.found.looks.append(
            {
                "rss_bytes": resident_bytes(os.getpid()),
                "descriptors": open_files(os.getpid()),
                "threads": threading.active_count(),
                "tasks": len(asyncio.all_tasks()) - 1,
            }
        )


def soak(root: Path, requests: int, seed: int) -> dict[str, object]:
    """Run a soak in an empty folder and return its summary; ``problems`` is empty if all is well."""
    begun_s = time.monotonic()
    soaking = Soak(root, requests, seed)
    full_bytes = store_bytes(root)
    server = Server(root)
    beside = [start_beside("evict", root, int(QUOTA_SHARE * full_bytes))]
    beside += [start_beside("write", root, writer) for writer in (1, 2)]
    faults = Faults(root, server, seed, soaking.foreign, [process.pid for process in beside[1:]])
    try:
        for process in beside:
            await_ready(process)
        with faults:
            asyncio.run(soaking.run(server.url))
    finally:
        server_files = open_files(server.process.pid)
        ends = [process.communicate(timeout=300)[0].decode().strip() for process in beside]
        server.kill()
    wait_a_moment()
    found, growth = soaking.found, soaking.found.growth()
    temporary = len(list((root / ".tmp").iterdir()))
    claims = len(list((root / "claims").rglob("*"))) if (root / "claims").exists() else 0
    problems = [*found.bad]
    problems += [
        f"{name} grew by {grown}, {ALLOWED[name]} allowed" for name, grown in growth.items() if grown > ALLOWED[name]
    ]
    problems += [f"a process beside ended with status {each.returncode}" for each in beside if each.returncode]
    # a server that is killed while it notes a use leaves that file, once
    if temporary > faults.counts["kill -9 and restart"]:
        problems.append(f"{temporary} temporary files are left")
    return {
        "requests": requests,
        "seed": seed,
        "outcomes": dict(found.outcomes),
        "wrong_tokens": found.outcomes["wrong"],
        "stuck": found.outcomes["stuck"],
        "chunks": dict(found.sources),
        "log_events": dict(found.events),
        "faults": faults.counts,
        "evicted_objects": int(ends[0] or 0),
        "refused_writes": sum(int(end or 0) for end in ends[1:]),
        "longest_load_s": round(found.longest_s, 2),
        "start": found.looks[0],
        "end": found.looks[-1],
        "growth": growth,
        "server_descriptors": server_files,
        "temporary_files": temporary,
        "claims": claims,
        "seconds": round(time.monotonic() - begun_s, 1),
        "problems": problems,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak, print its summary and keep it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000, metavar="N", help="default: 1000")
    parser.add_argument("--seed", type=int, default=0, help="of requests and faults (default: 0)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        summary = soak(Path(folder).resolve(), options.requests, options.seed)
    text = json.dumps(summary, indent=2) + "\n"
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 1 if summary["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
