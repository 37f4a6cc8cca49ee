#!/usr/bin/python3
"""Reads what `ssn export` wrote as HDF5 into a PyTorch state dictionary, under the names that PyTorch's users know.

    tools/h5/to_torch.py WEIGHTS.h5 OUT.pt         # model.load_state_dict(torch.load("OUT.pt"))

As a module, with h5py and numpy alone: `arrays(path)` gives a dictionary of arrays; `state_dict(path)` needs torch.
"""
import os
import sys

import h5py
import numpy as np


class UsageError(Exception):
    pass


def arrays(path):
    """The network's tensors by name."""
    try:
        with h5py.File(path, "r") as file:
            if "parameters/group0" in file:
                raise UsageError(f"{path} is a checkpoint: make its weights with `ssn export {path} WEIGHTS.h5`")
            layout = file.attrs.get("layout", "oihw")
            layout = layout.decode() if isinstance(layout, bytes) else layout
            if layout != "oihw":
                raise UsageError(f"{path} has its weights as {layout}: export it with --layout oihw")
            found = {name: item[()] for name, item in file.items() if isinstance(item, h5py.Dataset)}
    except OSError as error:
        raise UsageError(f"{path}: cannot read it: {error}") from None
    if not found:
        raise UsageError(f"{path} has no tensors of PyTorch's names: export it with --names torch")
    return found


def state_dict(path):
    import torch
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays(path).items()}


def main(arguments):
    if len(arguments) != 2:
        raise UsageError(__doc__.strip())
    import torch
    path, out = arguments
    state = state_dict(path)
    torch.save(state, out + ".partial")
    os.replace(out + ".partial", out)
    print(f"{out}: {len(state)} tensors, {sum(t.numel() for t in state.values())} elements")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        print(f"to_torch: {error}", file=sys.stderr)
        sys.exit(2)
