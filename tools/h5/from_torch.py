#!/usr/bin/python3
"""Writes a PyTorch state dictionary as HDF5, which `ssn import` and `ssn train --init` read.

    tools/h5/from_torch.py MODEL.pt WEIGHTS.h5     # MODEL.pt: torch.save(model.state_dict(), "MODEL.pt")

As a module: `write(state_dict, path)`, whose values are tensors or arrays.
"""
import os
import sys

import h5py
import numpy as np


class UsageError(Exception):
    pass


def array(value):
    """Of a tensor or array; narrow types become float32, as HDF5 has no bfloat16."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() and value.element_size() < 4 else value).numpy()
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype == np.float16 else value


def write(state_dict, path):
    """Whole or not at all. Numbers of steps and the like are left out."""
    partial = path + ".partial"
    with h5py.File(partial, "w", libver="latest") as file:
        file.attrs["layout"] = "oihw"
        for name, value in state_dict.items():
            value = array(value)
            if value.dtype.kind == "f":
                file.create_dataset(name, data=value)
    os.replace(partial, path)


def load(path):
    """A saved state dictionary, also one within the dictionary that a training saved."""
    import torch
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has no type of its own for it
        raise UsageError(f"{path}: cannot read it as a state dictionary: {error}") from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UsageError(f"{path} is no state dictionary: save model.state_dict()")
    return state


def main(arguments):
    if len(arguments) != 2:
        raise UsageError(__doc__.strip())
    path, out = arguments
    state = load(path)
    write(state, out)
    print(f"{out}: {len(state)} tensors of {path}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        print(f"from_torch: {error}", file=sys.stderr)
        sys.exit(2)
