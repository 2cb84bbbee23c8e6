"""Imports point one way, and the public names are what the packages say."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cachegen

ROOT = Path(__file__).resolve().parent.parent
LIBRARY, TESTBED = sorted((ROOT / "cachegen").rglob("*.py")), sorted((ROOT / "testbed").rglob("*.py"))

# Each layer of the library may import from itself and from those below it.
LAYERS = [
    {
        "errors",
        "allocation",
        "cache_dir",
        "calibration_texts",
        "held_out_text",
        "large_tensor",
        "provenance",
        "whole_file",
    },
    {"input_file", "strict_json"},
    {"bearer_token"},
    {"kv", "encoding", "chunking", "stage_clock", "recompute_cost", "estimators"},
    {"kernels"},
    {"codecs", "controllers", "link_use", "store_health", "patience", "load_commands"},
    {"sharing", "chunk_progress", "last_chunk"},
    {"load_session", "load_events", "load_host"},
    {"container", "manifest", "index_recovery"},
    {
        "profile_arrays",
        "transform_moments",
        "transform_fit",
        "coefficient_tables",
        "stores",
        "token_moments",
        "codebook_fit",
        "basis_fit",
        "head_matrices",
    },
    {"profile"},
    {"profile_builder", "profile_cache", "kv_file"},
    {"pipeline", "sources", "server", "kv_buffer", "kv_cache", "default_model", "quality"},
    {"model_shape", "model_lengths", "model_fingerprint", "generation_options", "inspection"},
    {"model"},
    {"model_probe", "own_text", "token_features", "fisher", "assembly", "batch"},
    {"calibration", "held_out"},
    {"load_run", "index_fetch", "early_fetch", "load_costs"},
    {"loader"},
    {"measure", "api", "benchmark", "ablation", "transform_ablation", "ablation_page"},
    {"commands"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Packages that only these modules may import, at any depth of a function.
ONLY_IN = {
    "mininet": {"testbed/network.py", "testbed/hosts.py", "testbed/topologies"},
    "transformers": {
        "cachegen/model.py",
        "cachegen/model_shape.py",
        "cachegen/kv_buffer.py",
        "cachegen/kv_cache.py",
        "cachegen/batch.py",
        "cachegen/default_model.py",
    },
    "numba": {"cachegen/kernels"},
    "triton": {"cachegen/kernels/triton_"},
    "matplotlib": {"testbed/figures.py", "testbed/plot.py", "testbed/traces/figure.py", "cachegen/benchmark/plot.py"},
    "rich": {"testbed/console.py", "testbed/traces/commands/list_all.py", "cachegen/commands/terminal.py"},
    "constriction": {"cachegen/benchmark/coders.py"},
    "zstandard": {"cachegen/benchmark/lossless.py"},
    "aiohttp": {"cachegen/server/", "cachegen/sources/"},
    "jinja2": {"testbed/html_report/page.py"},
    "pyarrow": {"testbed/request_table.py"},
    "redis": {"cachegen/stores/redis_"},
    "obstore": {"cachegen/stores/s3_store.py"},
    "scapy": {"testbed/packets/frames.py"},
}
# Decide on numbers alone: no tensor, socket or clock.
PURE = {"torch", "numpy", "aiohttp", "socket", "time", "asyncio", "threading"}
# Read run directories of any age on any machine.
ANALYSIS = [
    "metrics.py",
    "slo.py",
    "stats.py",
    "paired.py",
    "explain.py",
    "report.py",
    "controller_report.py",
    "result_table.py",
    "plot.py",
    "figures.py",
    "fidelity.py",
    "compare/__main__.py",
]


def imports_of(path):
    """Every module named by an import statement of a file, with the names taken from it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module, tuple(alias.name for alias in node.names)


def relative(path):
    return path.relative_to(ROOT).as_posix()


def part_of(path):
    """The library's module or sub-package that a file belongs to."""
    return relative(path).split("/")[1].removesuffix(".py")


def test_every_module_of_the_library_has_a_layer():
    assert {part_of(path) for path in LIBRARY} == set(LEVEL)


@pytest.mark.parametrize("path", LIBRARY, ids=relative)
def test_the_library_imports_downwards_and_never_the_testbed(path):
    for module, _ in imports_of(path):
        assert module.split(".")[0] != "testbed"
        if module.startswith("cachegen."):
            target = module.split(".")[1]
            assert LEVEL[target] <= LEVEL[part_of(path)], f"{relative(path)} imports {module}"


@pytest.mark.parametrize("path", TESTBED, ids=relative)
def test_the_testbed_uses_public_names_of_the_library_alone(path):
    for module, names in imports_of(path):
        if module.split(".")[0] == "cachegen":
            assert module == "cachegen", f"{relative(path)} imports {module}"
            assert set(names) <= set(cachegen.__all__)


@pytest.mark.parametrize("package", ONLY_IN)
def test_each_heavy_package_has_its_place(package):
    found = {
        relative(path)
        for path in [*LIBRARY, *TESTBED]
        for module, _ in imports_of(path)
        if module.split(".")[0] == package
    }
    assert found
    assert [path for path in found if not any(path.startswith(home) for home in ONLY_IN[package])] == []


DECIDING = [path for folder in ("controllers", "sharing") for path in sorted((ROOT / "cachegen" / folder).glob("*.py"))]


@pytest.mark.parametrize("path", DECIDING, ids=relative)
def test_what_decides_sees_numbers_alone(path):
    assert not {module.split(".")[0] for module, _ in imports_of(path)} & PURE


def test_analysis_loads_neither_mininet_nor_torch():
    modules = [f"testbed.{name.removesuffix('.py').replace('/', '.')}" for name in ANALYSIS]
    program = f"import sys, {', '.join(modules)}; print([m for m in ('torch', 'mininet') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_library_loads_no_torch():
    program = "import cachegen, sys; cachegen.CachegenError; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_public_name_loads():
    for name in cachegen.__all__:
        assert getattr(cachegen, name) is not None


def test_the_list_of_public_names_is_complete():
    stub = (ROOT / "cachegen" / "__init__.pyi").read_text(encoding="utf-8")
    listed = re.findall(r'^    "(\w+)",$', stub, re.MULTILINE)
    assert sorted(listed) == sorted(cachegen.__all__)


def test_set_up_needs_the_standard_library_alone():
    before = {"bootstrap", "arguments", "ownership"}
    for name in before:
        for module, _ in imports_of(ROOT / "testbed" / f"{name}.py"):
            known = module.split(".")[0] in sys.stdlib_module_names or module.removeprefix("testbed.") in before
            assert known, f"{name} imports {module}"


def test_no_file_is_called_by_a_word_that_says_nothing():
    vague = {"utils", "util", "common", "misc", "helpers", "manager"}
    assert [relative(path) for path in [*LIBRARY, *TESTBED] if path.stem in vague] == []


def test_the_run_itself_does_without_pytorch_whose_import_takes_seconds():
    # the model is another process's
    code = "import sys, testbed.experiment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
