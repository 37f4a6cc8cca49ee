#!/usr/bin/python3
"""Writes networks/*.h5 (README.md has the schema): a training step of small networks in PyTorch.

    /usr/bin/python3 make_networks.py [NAME...]

Made by hand, with PyTorch 1.13 and torchvision 0.14. The networks are torchvision's own classes, cut to a
NetworkSize: every inner count of channels times `width`, `removed` blocks fewer in each stage.
"""
import math
import os
import re
import sys

import h5py
import numpy as np
import torch
import torchvision
from torch import nn


class Size:
    def __init__(self, width, removed):
        self.width, self.removed = width, removed

    def channels(self, published):
        return max(1, math.floor(published * self.width + 0.5))

    def blocks(self, published):
        return max(1, published - self.removed)


def narrow(module, size, keep):
    """Replaces every layer by one of fewer channels, but for the outer counts in `keep` (images, classes)."""
    def count(n):
        return n if n in keep else size.channels(n)
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d):
            new = nn.Conv2d(count(child.in_channels), count(child.out_channels), child.kernel_size, child.stride,
                            child.padding, groups=1 if child.groups == 1 else count(child.groups),
                            bias=child.bias is not None)
        elif isinstance(child, nn.BatchNorm2d):
            new = nn.BatchNorm2d(count(child.num_features), child.eps, child.momentum)
        elif isinstance(child, nn.Linear):
            new = nn.Linear(count(child.in_features), count(child.out_features))
        else:
            narrow(child, size, keep)
            continue
        setattr(module, name, new)


def parameters_of(model, rename):
    """(our name, parameter) of each; a weight has its layer's name, a norm's is called gain."""
    result = []
    for path, module in model.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            ours = rename(path)
            if leaf != "weight":
                ours += "." + leaf
            elif isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                ours += ".gain"
            result.append((ours, parameter))
    return result


def write(name, attributes, model, rename, inputs, labels):
    """One step of `model`, which maps a batch to logits, in float64 from values that float32 holds exactly."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 1 if torch.all(parameter == 1) else 0, 0.2)
        parameter.data = parameter.data.half().float()  # of few bits: they compress
    model.double().train()
    logits = model(*[torch.from_numpy(x).double() if x.dtype == np.float32 else torch.from_numpy(x).long()
                     for x in inputs.values()])
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels).long())
    loss.backward()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "networks", name + ".h5")
    with h5py.File(path, "w", libver="latest") as file:
        for key, value in {"seed": 1, "step": 0, "first": 0, "size_width": 1.0, "size_removed": 0, **attributes}.items():
            file.attrs[key] = value

        def dataset(key, value):
            value = value.astype(np.float32) if value.dtype == np.float64 else value
            packed = {"compression": "gzip", "compression_opts": 9, "shuffle": True} if value.size > 64 else {}
            file.create_dataset(key, data=value, **packed)
        for key, value in inputs.items():
            dataset("in/" + key, value.transpose(0, 2, 3, 1) if value.ndim == 4 else value)
        dataset("in/labels", labels)
        dataset("out/logits", logits.detach().numpy())
        dataset("out/loss", np.array([loss.item()]))
        for ours, parameter in parameters_of(model, rename):
            dataset("parameters/" + ours, parameter.detach().numpy())
            dataset("gradients/" + ours, parameter.grad.numpy())
        for key, value in model.named_buffers():
            if "running" in key:
                module, leaf = key.rsplit(".", 1)
                dataset(f"statistics/{rename(module)}.{leaf}", value.numpy())
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, loss {loss.item():.4f}, "
          f"{os.path.getsize(path) / 1e3:.0f} KB")


def images(n, height, width, channels=3):
    return np.round(4 * np.random.standard_normal((n, channels, height, width))).astype(np.float32) / 4


def labels(n, classes):
    return np.random.randint(0, classes, n).astype(np.int32)


def image_network(name, network, model, rename, batch, height, width, classes, size):
    write(name, {"network": network, "channels": 3, "height": height, "width": width, "classes": classes,
                 "size_width": size.width, "size_removed": size.removed},
          model, rename, {"images": images(batch, height, width)}, labels(batch, classes))


def resnet(name, network, model, size, batch, side):
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        del stage[size.blocks(len(stage)):]
    narrow(model, size, {3, 7})
    if side < 64:
        first = model.conv1
        model.conv1 = nn.Conv2d(3, first.out_channels, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    def rename(path):
        return path.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut_bn")
    image_network(name, network, model, rename, batch, side, side + 1, 7, size)


MODELS = torchvision.models
NETWORKS = {
    "resnet_18": lambda name: resnet(name, "resnet-18", MODELS.resnet18(num_classes=7), Size(1 / 32, 0), 3, 64),
    "resnet_34_small": lambda name: resnet(name, "resnet-34", MODELS.resnet34(num_classes=7), Size(1 / 32, 1), 5, 17),
    "resnet_50": lambda name: resnet(name, "resnet-50", MODELS.resnet50(num_classes=7), Size(1 / 32, 2), 3, 65),
    "wide_resnet_50_2": lambda name: resnet(name, "wide-resnet-50-2", MODELS.wide_resnet50_2(num_classes=7),
                                            Size(1 / 32, 3), 3, 64),
}

if __name__ == "__main__":
    for network in sys.argv[1:] or NETWORKS:
        torch.manual_seed(1)
        np.random.seed(1)
        NETWORKS[network](network)
