"""Coverage-guided fuzzing of one kind of input: ``python tests/fuzz/fuzz.py KIND CORPUS_DIR [libFuzzer options]``.

Python code is instrumented, so that inputs that reach new lines are kept in the corpus; the NumPy backend shows the
fuzzer the stages that Numba compiles out of its sight. Fails on anything but the library's own errors: other
exceptions, warnings, NaN, backends that disagree, memory or time beyond bounds.
"""

import random
import resource
import sys
import warnings
from pathlib import Path

import atheris

ROOT = Path(__file__).parent.parent.parent
# beside what the process has when it starts: the largest chunk that a mutated header can legally claim takes a third
MEMORY_BYTES = 1 << 30
SECONDS_PER_INPUT = 120


def kernel_modules() -> list[str]:
    """Modules whose functions a compiler reads: instrumented, they would not compile."""
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "cachegen" / "kernels").rglob("*.py")
        if any(compiler in path.read_text(encoding="utf-8") for compiler in ("jit", "triton"))
    ]


with atheris.instrument_imports(include=["cachegen"], exclude=kernel_modules()):
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import mutators
    import properties
    import seeds

KINDS = {
    "container": (properties.check_container, mutators.mutate_container, seeds.containers),
    "profile": (properties.check_profile, mutators.mutate_profile, seeds.profiles),
    "manifest": (properties.check_manifest, mutators.mutate_manifest, seeds.manifests),
}


def limit_memory() -> None:
    """Make allocations beyond the bound fail, which the properties do not forgive."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    bound = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def main() -> None:
    """Write the seeds into the corpus, then hand over to libFuzzer, which ends the process."""
    kind, corpus, *options = sys.argv[1:]
    check, mutate, make_seeds = KINDS[kind]
    folder = Path(corpus)
    folder.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(make_seeds()):
        (folder / f"seed-{index:03}").write_bytes(seed)
        check(seed)  # also compiles what is compiled, before memory is bounded
    limit_memory()
    warnings.simplefilter("error")

    def custom_mutator(data: bytes, limit: int, seed: int) -> bytes:
        return mutate(data, limit, random.Random(seed), atheris.Mutate)

    arguments = [sys.argv[0], f"-timeout={SECONDS_PER_INPUT}", "-max_len=65536", "-len_control=0", *options, corpus]
    atheris.Setup(arguments, check, custom_mutator=custom_mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
