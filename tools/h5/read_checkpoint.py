#!/usr/bin/python3
"""Reads a checkpoint as docs/checkpoint-format.md describes it, with h5py and NumPy alone: what it holds, the plan,
and every layer's weight, generated. A command, and a module:

    checkpoint = read_checkpoint.read("runs/mine/checkpoint.h5")
    checkpoint.plan["options"]["combine"], checkpoint.weights()["conv1"]
"""

import argparse
import json
import sys
import zlib

import h5py
import numpy as np

VERSION = 2
SEAL = 512  # bytes before the HDF5 file


class Damaged(Exception):
    """What is wrong with a file, in words."""


def check_seal(path):
    """The version of the format that the file's first line names; 1 if it has no such line. Damaged unless the file
    is as it was written."""
    with open(path, "rb") as file:
        head = file.read(SEAL).split()
        if head[:2] != [b"shapeshifter-checkpoint", b"format-version"]:
            return 1
        version = int(head[2])
        if version > VERSION:
            raise Damaged(f"{path}: its format version is {version}, this program reads up to {VERSION}")
        fields = dict(zip(head[1::2], head[2::2]))
        length, checksum = SEAL, 0
        while block := file.read(1 << 20):
            length, checksum = length + len(block), zlib.crc32(block, checksum)
    if (length, checksum) != (int(fields[b"length"]), int(fields[b"crc32"], 16)):
        raise Damaged(f"{path}: it is truncated or damaged")
    return version


def resize(matrix, to):
    """Bilinear, half-pixel centres, without antialias."""
    for axis, out in enumerate(to):
        size = matrix.shape[axis]
        source = np.clip((np.arange(out) + 0.5) * (size / out) - 0.5, 0, size - 1)
        low = source.astype(int)
        high = np.minimum(low + 1, size - 1)
        share = np.expand_dims(source - low, 1 - axis)
        matrix = np.take(matrix, low, axis) * (1 - share) + np.take(matrix, high, axis) * share
    return matrix


class Checkpoint:
    """tensors, attributes: by their path in the file. plan: as the document has it. averages: whether the moving
    averages of the parameters, where there are any, are what weights are made of, as `ssn export` does."""

    def __init__(self, path, averages=True):
        self.path, self.version = path, check_seal(path)
        self.tensors, self.attributes = {}, {}

        def add(name, thing):
            for key, value in thing.attrs.items():
                self.attributes[f"{name}/{key}".lstrip("/")] = value.decode() if isinstance(value, bytes) else value
            if isinstance(thing, h5py.Dataset):
                self.tensors[name] = thing[()]

        with h5py.File(path, "r") as file:
            add("", file)
            file.visititems(add)
        if self.attributes.get("format") != "shapeshifter-checkpoint":
            raise Damaged(f"{path}: it is no checkpoint")
        if self.attributes["format_version"] != self.version:
            raise Damaged(f"{path}: it is damaged: its beginning and its attributes have different versions")
        self.plan = json.loads(self.attributes["plan"])
        self.layers = {layer["name"]: layer for layer in self.plan["layers"]}
        averaged = averages and any(name.startswith("average/") for name in self.tensors)
        self.prefix = "average/parameters/" if averaged else "parameters/"

    def parameter(self, name):
        return self.tensors[self.prefix + name].astype(np.float64)

    def theta(self, group):
        """The parameters of a group, by its number."""
        return self.parameter(f"group{group}")

    def coefficients(self, name):
        """What the layer's templates are multiplied by before they are added; of a tiled layer, the factor of each
        element of the group's copies."""
        layer = self.layers[name]
        size = int(np.prod(layer["shape"]))
        if layer["tiles"] > 1:
            group = len(self.parameter(layer["theta"]))
            copies = np.ones((layer["tiles"], group))
            if "masks" in layer:
                for copy, mask in zip(copies[1:], self.parameter(layer["masks"])):
                    copy[:] = np.resize(mask, group)
            return copies.ravel()[:size]
        count = len(layer["offsets"])
        if "coefficients" not in layer:
            return np.full(count, 1 / count)
        alpha = self.parameter(layer["coefficients"])
        if "projection" in layer:
            names = layer["projection"]
            alpha = self.parameter(names["weight"]) @ alpha + self.parameter(names["bias"])
        if self.plan["options"]["softmax"]:
            alpha = np.exp(alpha - alpha.max())
            alpha /= alpha.sum()
        return alpha

    def weight(self, name):
        """A layer's weight, in the layer's own order and shape (docs/checkpoint-format.md, "Generating a weight")."""
        layer = self.layers[name]
        if "theta" not in layer:
            raise Damaged(f"{self.path}: its version, {self.version}, does not say how weights are generated")
        theta, size = self.parameter(layer["theta"]), int(np.prod(layer["shape"]))
        coefficients = self.coefficients(name)
        if layer["tiles"] > 1:
            weight = np.resize(theta, size) * coefficients
        else:
            length = int(np.prod(layer.get("grid", size)))
            weight = sum(c * theta[at : at + length] for c, at in zip(coefficients, layer["offsets"]))
        if "grid" in layer:
            weight = resize(weight.reshape(layer["grid"]), layer["resized_to"])
        return (layer["gain"] * weight).reshape(layer["shape"]).astype(np.float32)

    def weights(self):
        return {name: self.weight(name) for name in self.layers}


def read(path, averages=True):
    return Checkpoint(path, averages)


def summary(checkpoint):
    """What the command prints."""
    attributes, plan = checkpoint.attributes, checkpoint.plan
    counts = plan["parameters"]
    yield f"{checkpoint.path}: format version {checkpoint.version}, by program version {attributes['program_version']}"
    yield f"{counts['budget']} parameters in {len(plan['groups'])} groups make {counts['shareable']}; {counts['total']} in all"
    if "trainer/epoch" in attributes:
        yield f"{attributes['trainer/epoch']} epochs and {attributes['trainer/step']} steps are done"
    for name, layer in checkpoint.layers.items():
        shape = "x".join(map(str, layer["shape"]))
        yield f"{name:40} {shape:>16}  group {layer['group']:<4} {layer['method']}"


def main():
    parser = argparse.ArgumentParser(description="Checks a checkpoint and says what it holds.")
    parser.add_argument("file")
    parser.add_argument("--weights", metavar="OUT.npz", help="write every layer's weight, generated")
    options = parser.parse_args()
    try:
        checkpoint = read(options.file)
        print(*summary(checkpoint), sep="\n")
        if options.weights:
            np.savez(options.weights, **checkpoint.weights())
    except (Damaged, OSError) as error:
        sys.exit(f"read_checkpoint: {error}")


if __name__ == "__main__":
    main()
