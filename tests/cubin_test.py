#!/usr/bin/python3
"""What nvcc made of the hand-written kernels for sm_90: that each reaches memory as wide as it is written to, that its
products are the tensor cores', and that nothing lies in local memory.

tests/cubin_test.py --cuobjdump PROGRAM LIBRARY.a...

A kernel without a line in KERNELS is a failure, and so is a line without a kernel. Exit codes: 0 all is as it should be,
1 it is not, 2 wrong usage, 69 skipped: no cuobjdump, or no code for sm_90."""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys

SKIPPED = 69
ARCH = "sm_90"


def wide(loads=0, stores=0, shared=0, tensor=0):
    """The least numbers of instructions in any instantiation with full packs: 128-bit loads and stores of global memory,
    128-bit accesses of shared memory, and in bf16 products on tensor cores."""
    return {"loads": loads, "stores": stores, "shared": shared, "tensor": tensor}


NARROW = wide()

KERNELS = {  # file.kernel
    "generate.write_columns": wide(loads=4, stores=7, shared=10),  # 4 of f32, 1 of bf16, 2 with the channels last
    "generate.write_chunks": wide(loads=2, stores=5, shared=2),
    "generate_backward.add_columns": wide(loads=13, stores=4, shared=4),
    "generated_linear.multiply": wide(loads=8, tensor=4),
    "elementwise.map_kernel": wide(loads=1, stores=1),
    "elementwise.bias_kernel": wide(loads=2, stores=1),
    "dropout.dropout_kernel": wide(loads=1, stores=1),
    "augment.augment_kernel": wide(loads=2, stores=1),  # images are read by the byte
    "scale.scale_kernel": wide(loads=2, stores=1),
    "scale.scale_gradient_kernel": wide(loads=3, stores=2, shared=1),
    "reduce.chunk_sums_kernel": wide(loads=1, stores=1, shared=1),
    "permute.pad_channels": wide(loads=1, stores=1),
    "permute.cut_channels": wide(loads=1, stores=1),
    "norm.chunk_statistics_kernel": wide(loads=2, stores=2, shared=1),
    "norm.normalise_kernel": wide(loads=5, stores=1),
    "norm.chunk_gradients_kernel": wide(loads=5, stores=2, shared=1),
    "norm.input_gradient_kernel": wide(loads=7, stores=1),
    "layer_norm.layer_norm_kernel": wide(loads=5, stores=1),
    "layer_norm.parameter_gradients_kernel": wide(loads=2, stores=2, shared=1),
    "layer_norm.input_gradient_kernel": wide(loads=6, stores=1),
    "pool.max_pool_kernel": wide(loads=1, stores=2),
    "pool.max_pool_gradient_kernel": wide(loads=2, stores=1),
    "pool.avg_pool_kernel": wide(loads=1, stores=1),
    "pool.avg_pool_gradient_kernel": wide(loads=1, stores=1),
    "pool.global_kernel": wide(loads=1, stores=1, shared=1),
    "pool.global_gradient_kernel": wide(loads=1, stores=1),
    "depthwise.gather_kernel": wide(loads=2, stores=1),
    "depthwise.weight_gradient_kernel": wide(loads=2, shared=1),
    "embedding.gather_kernel": wide(loads=1, stores=1),
    "embedding.scatter_kernel": wide(loads=2, stores=1, shared=1),
    "optimizer.update_kernel": wide(loads=2, stores=1),
    "optimizer.lamb_moments_kernel": wide(loads=4, stores=2),
    "optimizer.lamb_step_kernel": wide(loads=3, stores=1),
    "optimizer.squares_kernel": wide(loads=1),
    "optimizer.not_finite_kernel": wide(loads=1),
    "attention.forward_kernel": wide(loads=3, stores=1, shared=1, tensor=16),
    "attention.query_gradient_kernel": wide(loads=4, stores=1, shared=1, tensor=16),
    "attention.key_gradient_kernel": wide(loads=4, stores=2, shared=2, tensor=16),
    # A thread an element, its neighbours' beside it: warps move whole lines.
    "fill.fill_kernel": NARROW,
    "nccl_wire.convert": NARROW,
    "weight_format.reorder": NARROW,
    "direct_conv.forward_kernel": NARROW,
    "direct_conv.data_kernel": NARROW,
    "direct_conv.weight_kernel": NARROW,
    "resize.resize_forward": NARROW,
    "resize.resize_backward": NARROW,
    "loss.cross_entropy_kernel": NARROW,  # a row of classes starts anywhere
    "loss.cross_entropy_gradient_kernel": NARROW,
    "loss.label_ranks_kernel": NARROW,
    "embedding.places_kernel": NARROW,
    # Of sums of parts, of coefficients, of a few numbers.
    "generate_backward.sum_partials": NARROW,
    "generate_backward.add_totals": NARROW,
    "generated_linear.add_slices": NARROW,
    "coefficients.make_coefficients": NARROW,
    "coefficients.carry_back": NARROW,
    "norm.merge_statistics_kernel": NARROW,
    "norm.merge_gradients_kernel": NARROW,
    "norm.update_kernel": NARROW,
    "layer_norm.merge_kernel": NARROW,
    "loss.scaled_sum_kernel": NARROW,
    "optimizer.trust_ratios_kernel": NARROW,
    "optimizer.sum_kernel": NARROW,
    "optimizer.set_kernel": NARROW,
    "optimizer.clip_kernel": NARROW,
    "sum_rows_kernel": NARROW,  # this and the next: of headers
    "unpack": NARROW,
}


class Function:
    """A kernel's instantiation, and its instructions."""

    def __init__(self, mangled):
        self.mangled = mangled
        found = re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_[0-9a-f]+", mangled)
        self.file = found[1] if found else ""
        self.name, self.arguments, self.counts, self.usage = "", [], collections.Counter(), {}

    def set_name(self, demangled):
        text = demangled.replace("(anonymous namespace)::", "").removeprefix("void ")
        self.name = re.match(r"(?:\w+::)*(\w+)", text)[1]
        rest, depth, start = text[text.index(self.name) + len(self.name) :], 0, 1
        for i, letter in enumerate(rest if rest.startswith("<") else ""):
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
            if (letter == "," and depth == 1) or depth == 0:
                self.arguments.append(rest[start:i].strip())
                start = i + 1
            if depth == 0:
                break

    def key(self):
        return f"{self.file}.{self.name}" if self.file else self.name

    def shown(self):
        return f"{self.key()}<{', '.join(self.arguments)}>"

    def full_packs(self):
        """Whether it is to be used where packs of 16 bytes fit: its number of elements in a pack, if it has one, is that."""
        sizes = [{"float": 4, "ssn::bf16": 2}[argument] for argument in self.arguments if argument in ("float", "ssn::bf16")]
        numbers = [int(argument) for argument in self.arguments if argument.isdigit()]
        if not sizes:  # f64 is for tests
            return "double" not in self.arguments and self.arguments != ["1"]
        return not numbers or numbers[0] * min(sizes) >= 16

    def count(self, instruction):
        operation, *modifiers = instruction.split(".")
        width = next((modifier for modifier in modifiers if modifier in ("64", "128")), "32")
        kinds = {"LDG": "loads", "LD": "loads", "LDGSTS": "loads", "STG": "stores", "ST": "stores", "LDS": "shared", "STS": "shared"}
        if operation in kinds and width == "128":
            self.counts[kinds[operation]] += 1
        if operation in ("HMMA", "HGMMA"):
            self.counts["tensor"] += 1
        if operation in ("LDL", "STL"):
            self.counts["local"] += 1


def output(*command, given=None):
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


def functions_of(cuobjdump, library):
    """By their mangled names."""
    functions, current = {}, None
    for line in output(cuobjdump, "-sass", "-arch", ARCH, library).splitlines():
        if found := re.match(r"\s+Function : (\S+)", line):
            current = functions.setdefault(found[1], Function(found[1]))
        elif current and (found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?PT?\d* )?([A-Z][A-Z0-9_.]*)", line)):
            current.count(found[1])
    current = None
    for line in output(cuobjdump, "-res-usage", "-arch", ARCH, library).splitlines():
        if found := re.match(r"\s*Function (\S+):", line):
            current = functions.get(found[1])
        elif current and "STACK:" in line:
            current.usage = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", line)}
    names = output("c++filt", given="\n".join(functions)).splitlines()
    for function, name in zip(functions.values(), names):
        function.set_name(name)
    return list(functions.values())


def complaints(function, want):
    said = []
    if function.full_packs():
        what = {"loads": "128-bit loads", "stores": "128-bit stores", "shared": "128-bit accesses of shared memory",
                "tensor": "products on tensor cores"}
        said = [f"{number} {what[kind]} at least, found {function.counts[kind]}" for kind, number in want.items()
                if function.counts[kind] < number and (kind != "tensor" or "ssn::bf16" in function.arguments)]
    if function.usage.get("STACK", 0) or function.usage.get("LOCAL", 0) or function.counts["local"]:
        said.append(f"nothing in local memory, found {function.usage} and {function.counts['local']} accesses")
    return [f"{function.shown()}: expected {line}" for line in said]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--list", action="store_true", help="print what is found of every kernel")
    parser.add_argument("libraries", nargs="+")
    options = parser.parse_args()
    cuobjdump = shutil.which(options.cuobjdump)
    if cuobjdump:
        os.environ["PATH"] += os.pathsep + os.path.dirname(cuobjdump)  # where the toolkit has nvdisasm too
    if not cuobjdump or not shutil.which("nvdisasm"):
        print("skipped: no cuobjdump with nvdisasm here; both are parts of CUDA's toolkit")
        return SKIPPED
    functions = [function for library in options.libraries for function in functions_of(cuobjdump, library)]
    if not functions:
        print(f"skipped: {', '.join(map(os.path.basename, options.libraries))}: no code for {ARCH}")
        return SKIPPED
    if options.list:
        for function in sorted(functions, key=Function.shown):
            print(f"{function.shown()}: {dict(function.counts)} {function.usage}")
    wrong, seen = [], set()
    for function in functions:
        seen.add(function.key())
        if function.key() in KERNELS:
            wrong += complaints(function, KERNELS[function.key()])
    wrong += [f"{key}: has no line in KERNELS: say how wide it reaches memory" for key in sorted(seen - set(KERNELS))]
    wrong += [f"{key}: there is no such kernel" for key in sorted(set(KERNELS) - seen)]
    print("\n".join(wrong) if wrong else f"{len(functions)} functions of {len(seen)} kernels are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
