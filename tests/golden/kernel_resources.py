"""Compiles every GPU kernel ahead of time, without a GPU, and says what each takes of one.

``python tests/golden/kernel_resources.py`` writes the record that ``test_triton_resources.py`` compares; to be run on
purpose, after a change of kernel or compiler. With ``--print`` it prints instead. Not to be run interpreted.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from cachegen.kernels import (
    triton_histogram,
    triton_prediction,
    triton_quantize,
    triton_rans,
    triton_restore,
    triton_uniform,
)

RECORD = Path(__file__).parent / "kernel_resources.json"
CAPABILITIES = (80, 90)
WARP_THREADS = 32
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"

# As kernels get them: bfloat16 as its bits.
ELEMENTS = {"fp32": "*fp32", "fp16": "*fp16", "bf16": "*u16"}
STREAMS = {"rows": "*i64", "states": "*u32", "words": "*u16", "escapes": "*i32", "symbols": "*i32"}
STREAMS |= {"entries": "*i64", "cumulative": "*u16", "faults": "*i32", "counts": "*i64"}
QUANTIZED = {"scale_bits": "*u16", "anchors": "*i32", "symbols": "*i32", "bins": "*fp32", "sums": "*fp64"}
QUANTIZED |= {"largest": "fp32"}
TURNS = {"cos": "*fp32", "sin": "*fp32", "partners": "*i32", "kind_of_head": "*i32"}
RESTORED = {
    "x": "*fp32",
    "steps": "*fp32",
    "factors": "*fp32",
    "means": "*fp32",
    "coded": "*i64",
    "largest": "fp32",
    **TURNS,
}
# What Triton knows of the numbers in a launch for a usual cache: it compiles for them.
MULTIPLES_OF_16 = {"row_stride", "layer_stride", "token_stride", "head_stride", "x_head_stride", "x_token_stride"}
MULTIPLES_OF_16 |= {"channels", "head_dim"}
ONES = {"dim_stride"}


@dataclass(frozen=True)
class Variant:
    """A kernel as it is launched; parameters that neither ``types`` nor ``constants`` name are 32-bit numbers."""

    name: str
    function: Any
    options: dict
    types: dict
    constants: dict = field(default_factory=dict)


def variants():
    """Every kernel, for each type of element that it takes."""
    rans, quantize, restore = triton_rans, triton_quantize, triton_restore
    yield Variant("rans_decode", rans.decode_kernel, rans.LAUNCH, STREAMS)
    yield Variant("rans_encode", rans.encode_kernel, rans.LAUNCH, STREAMS)
    for name, element in (("words", "*u16"), ("escapes", "*i32")):
        moved = {"source": element, "target": element, "starts": "*i64", "target_starts": "*i64"}
        yield Variant(f"rans_move_{name}", rans.move_kernel, rans.COPY_LAUNCH, moved, {"block": rans.COPY_BLOCK})
    counted = {"symbols": "*i32", "counts": "*u32"}
    block = {"block": triton_histogram.BLOCK}
    yield Variant("count", triton_histogram.count_kernel, triton_histogram.LAUNCH, counted, block)
    uniform = {"y": "*fp32", "step": "*fp64", "symbols": "*i32"}
    block = {"block": triton_uniform.BLOCK}
    yield Variant("uniform", triton_uniform.quantize_kernel, triton_uniform.LAUNCH, uniform, block)
    for name, element in (("int16", "*i16"), ("int32", "*i32")):
        added = {"columns": "*i32", "weights": "*i32", "ranks": "*i32", "residuals": element}
        block = {"block": triton_prediction.BLOCK}
        yield Variant(f"add_{name}", triton_prediction.add_kernel, triton_prediction.LAUNCH, added, block)
    summed = {"sums": "*fp64", "totals": "*fp64"}
    yield Variant("totals", quantize.totals_kernel, quantize.SUMS_LAUNCH, summed, {"block": quantize.TOTALS_BLOCK})
    tile = {"tokens_tile": quantize.TOKENS_TILE, "channels_tile": quantize.CHANNELS_TILE}
    for name, element in ELEMENTS.items():
        types, bfloat16 = QUANTIZED | {"x": element, "out": element}, {"is_bfloat16": name == "bf16"}
        for kernel, options, sizes in (
            ("scales", quantize.LAUNCH, {"block": quantize.SCALES_BLOCK}),
            ("squares", quantize.SUMS_LAUNCH, {"block": quantize.SQUARES_BLOCK}),
            ("anchors", quantize.LAUNCH, tile),
            ("deltas", quantize.LAUNCH, tile),
            ("reconstruct", quantize.LAUNCH, tile),
        ):
            function = getattr(quantize, f"{kernel}_kernel")
            yield Variant(f"{kernel}_{name}", function, options, types, bfloat16 | sizes)
        sizes = {"tokens_tile": restore.TOKENS_TILE, "dims_tile": restore.DIMS_TILE}
        for half, turn in (("keys", True), ("values", False)):
            constants = bfloat16 | sizes | {"turn": turn}
            types = RESTORED | {"out": element}
            yield Variant(f"restore_{half}_{name}", restore.restore_kernel, restore.LAUNCH, types, constants)


def compile_variant(variant, capability, ones=ONES, number="i32"):
    """The kernel compiled for a target that need not be there, as in a launch for a usual cache.

    Numbers that are 1 are constants to the compiler; those of ``ones`` are taken to be 1.
    """
    names = variant.function.arg_names
    types = {name: variant.types.get(name, number) for name in names}
    constants = variant.constants | {name: 1 for name in names if types[name] == number and name in ones}
    types |= dict.fromkeys(constants, "constexpr")
    known = [name for name in names if types[name].startswith("*") or name in MULTIPLES_OF_16 - constants.keys()]
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in known}
    source = ASTSource(variant.function, types, constants, aligned)
    target = GPUTarget("cuda", capability, WARP_THREADS)
    return triton.compile(source, target=target, options=dict(variant.options))


def resources(compiled):
    """Registers and bytes of stack (where spills go) of a thread, bytes of shared memory of a program."""
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        done = subprocess.run([CUOBJDUMP, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True)
    used = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", done.stdout)}
    return {
        "registers": used["REG"],
        "shared_bytes": max(used["SHARED"], compiled.metadata.shared),
        "stack_bytes": used["STACK"] + used["LOCAL"],
        # a product and a sum that are rounded once
        "fused": "fma.rn" in compiled.asm["ptx"],
    }


def compile_unusual():
    """Compile what is not recorded but must compile: one token of one channel, and strides beyond 32 bits."""
    for variant in variants():
        if "16" not in variant.name:
            compile_variant(variant, 90, ones=variant.function.arg_names)
            compile_variant(variant, 90, ones=(), number="i64")


def record():
    """What every kernel takes on each architecture, by name."""
    jobs = [(variant, capability) for variant in variants() for capability in CAPABILITIES]
    kernels = {f"{variant.name} sm_{cc}": resources(compile_variant(variant, cc)) for variant, cc in jobs}
    return {"triton": triton.__version__, "kernels": dict(sorted(kernels.items()))}


def main():
    """Write or print the record."""
    compile_unusual()
    text = json.dumps(record(), indent=2) + "\n"
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(text)
    else:
        RECORD.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
