"""Compiles every GPU kernel ahead of time, without a GPU, and says what each takes of one.

``python tests/golden/kernel_resources.py`` writes the record that ``test_triton_resources.py`` compares; to be run on
purpose, after a change of kernel or compiler. With ``--print`` it prints instead. Not to be run interpreted.
"""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from cachegen.kernels import triton_histogram, triton_quantize, triton_rans, triton_restore, triton_uniform

RECORD = Path(__file__).parent / "kernel_resources.json"
CAPABILITIES = (80, 90)
WARP_THREADS = 32
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"

VALUES = {"fp32": "*fp32", "fp16": "*fp16", "bf16": "*u16"}
SOURCE = "row_stride:i32 token_stride:i32 head_stride:i32 dim_stride:i32"
TILE = {"tokens_tile": triton_quantize.TOKENS_TILE, "channels_tile": triton_quantize.CHANNELS_TILE}


def signatures():
    """Name, kernel, types of its parameters in order, constants and launch options of each compiled variant."""
    q = triton_quantize
    yield "count", triton_histogram.count_kernel, "symbols:*i32 tokens:i32 counts:*i64", {
        "block": triton_histogram.BLOCK
    }, triton_histogram.LAUNCH
    yield (
        "rans_decode",
        triton_rans.decode_kernel,
        "rows:*i64 states:*u32 words:*u16 escapes:*i32 entries:*i64 cumulative:*u16 symbols:*i32 faults:*i32",
        {},
        triton_rans.LAUNCH,
    )
    yield (
        "rans_encode",
        triton_rans.encode_kernel,
        "rows:*i64 symbols:*i32 entries:*i64 cumulative:*u16 states:*u32 words:*u16 escapes:*i32 counts:*i64",
        {},
        triton_rans.LAUNCH,
    )
    for name, element in (("words", "*u16"), ("escapes", "*i32")):
        types = f"source:{element} starts:*i64 target:{element} target_starts:*i64"
        yield f"rans_move_{name}", triton_rans.move_kernel, types, {
            "block": triton_rans.COPY_BLOCK
        }, triton_rans.COPY_LAUNCH
    yield "quantize_uniform", triton_uniform.quantize_kernel, "y:*fp32 step:*fp64 size:i32 symbols:*i32", {
        "block": triton_uniform.BLOCK
    }, triton_uniform.LAUNCH
    yield "totals", q.totals_kernel, "sums:*fp64 rows:i32 channels:i32 totals:*fp64", {
        "block": q.TOTALS_BLOCK
    }, q.SUMS_LAUNCH
    for name, element in VALUES.items():
        bfloat16 = {"is_bfloat16": name == "bf16"}
        yield (
            f"scales_{name}",
            q.scales_kernel,
            f"x:{element} {SOURCE} groups:i32 channels:i32 head_dim:i32 scale_bits:*u16",
            bfloat16 | {"block": q.SCALES_BLOCK},
            q.LAUNCH,
        )
        yield (
            f"anchors_{name}",
            q.anchors_kernel,
            f"x:{element} {SOURCE} groups:i32 channels:i32 head_dim:i32 scale_bits:*u16 symbols:*i32",
            bfloat16 | TILE,
            q.LAUNCH,
        )
        yield (
            f"squares_{name}",
            q.squares_kernel,
            f"x:{element} {SOURCE} rows:i32 tokens:i32 channels:i32 head_dim:i32 scale_bits:*u16 sums:*fp64",
            bfloat16 | {"block": q.SQUARES_BLOCK},
            q.SUMS_LAUNCH,
        )
        yield (
            f"deltas_{name}",
            q.deltas_kernel,
            f"x:{element} {SOURCE} deltas:i32 channels:i32 head_dim:i32 scale_bits:*u16 anchors:*i32 groups:i32 "
            "bins:*fp32 symbols:*i32",
            bfloat16 | TILE,
            q.LAUNCH,
        )
        yield (
            f"reconstruct_{name}",
            q.reconstruct_kernel,
            "scale_bits:*u16 anchors:*i32 groups:i32 bins:*fp32 symbols:*i32 deltas:i32 largest:fp32 channels:i32 "
            f"head_dim:i32 out:{element} {SOURCE}",
            bfloat16 | TILE,
            q.LAUNCH,
        )
        for half, turn in (("keys", True), ("values", False)):
            positions = "*fp32", "*i32"
            cos, partners = positions if turn else ("*fp32", "*i64")
            yield (
                f"restore_{half}_{name}",
                triton_restore.restore_kernel,
                "x:*fp32 x_head_stride:i32 x_token_stride:i32 tokens:i32 head_dim:i32 factors:*fp32 means:*fp32 "
                f"cos:{cos} sin:{cos} partners:{partners} kind_of_head:{partners} largest:fp32 first_head:i32 "
                f"kv_heads:i32 coded:*i64 out:{element} layer_stride:i32 token_stride:i32 head_stride:i32 dim_stride:i32",
                bfloat16
                | {"turn": turn, "tokens_tile": triton_restore.TOKENS_TILE, "dims_tile": triton_restore.DIMS_TILE},
                triton_restore.LAUNCH,
            )


def compile_kernel(function, types, constants, options, capability):
    """The kernel compiled for a target that need not be there; its tensors begin where torch allocates them."""
    signature = dict(pair.split(":") for pair in types.split()) | dict.fromkeys(constants, "constexpr")
    pointers = [name for name, kind in signature.items() if kind.startswith("*")]
    aligned = {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = ASTSource(function, {name: signature[name] for name in function.arg_names}, constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, WARP_THREADS), options=dict(options))


def resources(compiled):
    """Registers of a thread, bytes of shared memory of a program, bytes of stack (where spills go) of a thread."""
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        done = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True
        )
    used = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", done.stdout)}
    shared = max(used["SHARED"], compiled.metadata.shared)
    return {"registers": used["REG"], "shared_bytes": shared, "stack_bytes": used["STACK"] + used["LOCAL"]}


def measure(job):
    """One line of the record, and whether a product is fused with a sum in it."""
    (name, function, types, constants, options), capability = job
    compiled = compile_kernel(function, types, constants, options, capability)
    fused = re.search(r"\bfma\.rn", compiled.asm["ptx"]) is not None
    return f"{name} sm_{capability}", {**resources(compiled), "fused": fused}


def record():
    """What every kernel takes on each architecture, by name."""
    jobs = [(signature, capability) for signature in signatures() for capability in CAPABILITIES]
    with ThreadPoolExecutor() as pool:
        kernels = dict(pool.map(measure, jobs))
    return {"triton": triton.__version__, "kernels": dict(sorted(kernels.items()))}


def main():
    """Write or print the record."""
    text = json.dumps(record(), indent=2) + "\n"
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(text)
    else:
        RECORD.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
