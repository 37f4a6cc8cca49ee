#!/usr/bin/python3
"""Writes networks/*.h5 (README.md has the schema): a training step of small networks in PyTorch.

    /usr/bin/python3 make_networks.py [NAME...]

Made by hand, with PyTorch 1.13 and torchvision 0.14. The networks are torchvision's own classes, cut to a
NetworkSize: every inner count of channels times `width`, `removed` blocks fewer in each stage; transformers are those of
../reference_networks.py, without dropout.
"""
import functools
import math
import os
import sys

import h5py
import numpy as np
import torch
import torchvision
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from reference_networks import Albert, Bert  # noqa: E402


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


def write(name, attributes, model, inputs, labels):
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
        for key, value in {"seed": SEED, "step": STEP, "first": FIRST, "size_width": 1.0, "size_removed": 0, **attributes}.items():
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
        for key, parameter in model.named_parameters():
            dataset("parameters/" + key, parameter.detach().numpy())
            dataset("gradients/" + key, parameter.grad.numpy())
        for key, value in model.named_buffers():
            if "running" in key:
                dataset("statistics/" + key, value.numpy())
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, loss {loss.item():.4f}, "
          f"{os.path.getsize(path) / 1e3:.0f} KB")


def images(n, height, width, channels=3):
    return np.round(4 * np.random.standard_normal((n, channels, height, width))).astype(np.float32) / 4


def labels(n, classes):
    return np.random.randint(0, classes, n).astype(np.int32)


def image_network(name, network, model, batch, height, width, classes, size):
    write(name, {"network": network, "channels": 3, "height": height, "width": width, "classes": classes,
                 "size_width": size.width, "size_removed": size.removed},
          model, {"images": images(batch, height, width)}, labels(batch, classes))


def resnet(name, network, model, size, batch, side):
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        del stage[size.blocks(len(stage)):]
    narrow(model, size, {3, 7})
    if side < 64:
        first = model.conv1
        model.conv1 = nn.Conv2d(3, first.out_channels, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    image_network(name, network, model, batch, side, side + 1, 7, size)


def philox(seed, stream, index):
    """The four words of a draw (runtime/random.h)."""
    c = [index & 0xffffffff, index >> 32, stream & 0xffffffff, stream >> 32]
    k0, k1 = seed & 0xffffffff, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xffffffff, (a >> 32) ^ c[3] ^ k1, a & 0xffffffff]
        k0, k1 = (k0 + 0x9E3779B9) & 0xffffffff, (k1 + 0xBB67AE85) & 0xffffffff
    return c


def stream_of(text):
    h = 14695981039346656037
    for byte in text.encode():
        h = (h ^ byte) * 1099511628211 % 2**64
    return h


SEED, STEP, FIRST = 5, 17, 3


class Drop(nn.Module):
    """Our dropout (kernels/dropout.h): of elements, or of whole samples."""
    def __init__(self, name, rate, samples):
        super().__init__()
        self.stream, self.rate, self.samples = stream_of(name) + STEP, rate, samples

    def forward(self, x):
        if self.rate == 0:
            return x
        shape = [x.shape[0]] + [1] * (x.dim() - 1) if self.samples else list(x.shape)
        count, first = math.prod(shape), FIRST * math.prod(shape[1:])
        words = [philox(SEED, self.stream, u // 4)[u % 4] for u in range(first, first + count)]
        keep = torch.tensor([w >= int(self.rate * 2**32) for w in words]).reshape(shape)
        return x * keep / (1 - self.rate)


def densenet(name, network, growth, blocks, size, batch, side):
    model = torchvision.models.DenseNet(size.channels(growth), [size.blocks(b) for b in blocks],
                                        size.channels(2 * growth), num_classes=7)
    if side < 64:
        model.features.conv0 = nn.Conv2d(3, size.channels(2 * growth), 3, padding=1, bias=False)
        for stem in ("norm0", "relu0", "pool0"):
            delattr(model.features, stem)
    image_network(name, network, model, batch, side, side + 1, 7, size)


def efficientnet(name, network, model, size, batch, side):
    stages = model.features[1:-1]
    for stage in stages:
        del stage[size.blocks(len(stage)):]
    narrow(model, size, {3, 7})
    total, block = sum(len(stage) for stage in stages), 0
    for s, stage in enumerate(stages, 1):
        for i, layer in enumerate(stage):
            layer.stochastic_depth = Drop(f"stage{s}.{i}.drop", 0.2 * block / total, True)
            block += 1
    model.classifier[0] = Drop("dropout", model.classifier[0].p, False)
    image_network(name, network, model, batch, side, side + 1, 7, size)


PUBLISHED_NORM = functools.partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)


def transformer(name, network, layers, width, heads, embedding, size, lengths, length):
    vocabulary, longest = 50, max(lengths)
    model = (Albert(layers, width, heads, embedding, length, vocabulary) if embedding
             else Bert(layers, width, heads, length, vocabulary))
    rows = [i * longest + j for i, n in enumerate(lengths) for j in range(n) if np.random.rand() < 0.4]
    inputs = {"tokens": np.random.randint(0, vocabulary, (len(lengths), longest)), "lengths": np.array(lengths),
              "predicted": np.array(rows), "segments": np.random.randint(0, 2, (len(lengths), longest))}
    write(name, {"network": network, "length": length, "vocabulary": vocabulary, "training": 0, "size_width": size},
          model, {key: value.astype(np.int32) for key, value in inputs.items()},
          labels(len(rows), vocabulary))


MODELS = torchvision.models
NETWORKS = {
    "resnet_18": lambda name: resnet(name, "resnet-18", MODELS.resnet18(num_classes=7), Size(1 / 32, 0), 3, 64),
    "resnet_34_small": lambda name: resnet(name, "resnet-34", MODELS.resnet34(num_classes=7), Size(1 / 32, 1), 5, 17),
    "resnet_50": lambda name: resnet(name, "resnet-50", MODELS.resnet50(num_classes=7), Size(1 / 32, 2), 3, 65),
    "wide_resnet_50_2": lambda name: resnet(name, "wide-resnet-50-2", MODELS.wide_resnet50_2(num_classes=7),
                                            Size(1 / 32, 3), 3, 64),
    "densenet_22_8": lambda name: densenet(name, "densenet-22-8", 8, (3, 3, 3), Size(1 / 2, 0), 4, 16),
    "densenet_121": lambda name: densenet(name, "densenet-121", 32, (6, 12, 24, 16), Size(1 / 16, 10), 3, 64),
    "efficientnet_b0": lambda name: efficientnet(
        name, "efficientnet-b0", MODELS.efficientnet_b0(num_classes=7, norm_layer=PUBLISHED_NORM), Size(1 / 16, 1), 8, 32),
    "efficientnet_b2": lambda name: efficientnet(
        name, "efficientnet-b2", MODELS.efficientnet_b2(num_classes=7, norm_layer=PUBLISHED_NORM), Size(1 / 16, 4), 8, 33),
    "bert": lambda name: transformer(name, "bert-2-128", 2, 32, 2, 0, 0.25, [9, 5, 10], 12),
    "albert": lambda name: transformer(name, "albert-2-192", 2, 24, 3, 16, 0.125, [7, 11, 1], 11),
}

if __name__ == "__main__":
    for network in sys.argv[1:] or NETWORKS:
        torch.manual_seed(1)
        np.random.seed(1)
        NETWORKS[network](network)
