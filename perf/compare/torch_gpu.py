#!/usr/bin/env python3
"""Training steps in PyTorch on a GPU, as one would write them there: channels last, bf16 by autocast, torch.compile where
asked for. Of each network two: dense, and a naive SSN, whose weights PyTorch's own operations make from one group of
parameters: a weighted sum of templates, or masked tiles where the group is smaller than the weight. See perf/gpu_check.

Prints one JSON object a line: the milliseconds of every step, ended by waiting for the GPU, and the peak of memory."""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F


class Group(nn.Module):
    """One group of parameters, from which the weights are made that were asked for before build(). A layer's templates lie
    in one piece behind those of the layer before, or begin anew at the front where no room is left."""

    def __init__(self, budget, templates=8, window=9):
        super().__init__()
        self.budget, self.most, self.window = budget, templates, window
        self.shapes, self.first = [], []

    def ask(self, *shape):
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def build(self):
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        count = int(sum(sizes) * self.budget)
        self.theta = nn.Parameter(0.05 * torch.randn(count))
        self.numbers = nn.ParameterList()  # of each weight: its coefficients, or a mask for each tile but the first
        at = 0
        for size in sizes:
            templates = min(self.most, count // size)
            if templates == 0:
                self.first.append(None)
                self.numbers.append(1 + 0.1 * torch.randn(-(-size // count) - 1, self.window))
                continue
            at = at if at + templates * size <= count else 0
            self.first.append(at)
            self.numbers.append(torch.randn(templates) / templates**0.5)
            at += templates * size

    def weight(self, index):
        shape, first, numbers = self.shapes[index], self.first[index], self.numbers[index]
        size = torch.Size(shape).numel()
        if first is not None:
            rows = self.theta[first : first + len(numbers) * size].view(len(numbers), size)
            return (numbers[:, None] * rows).sum(0).view(shape)
        count = self.theta.numel()
        masks = numbers.repeat(1, -(-count // self.window))[:, :count]
        return torch.cat([self.theta, (masks * self.theta).flatten()])[:size].view(shape)


class SharedConv(nn.Module):
    def __init__(self, group, inputs, outputs, size, stride):
        super().__init__()
        self.index, self.stride, self.padding = group.ask(outputs, inputs, size, size), stride, size // 2
        self.make = group.weight  # bound: the group is no child, so that the model has its parameters once

    def forward(self, x):
        weight = self.make(self.index).to(memory_format=torch.channels_last)
        return F.conv2d(x, weight, None, self.stride, self.padding)


class SharedLinear(nn.Module):
    def __init__(self, group, inputs, outputs):
        super().__init__()
        self.index, self.make = group.ask(outputs, inputs), group.weight
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return F.linear(x, self.make(self.index), self.bias)


class Layers:
    """Makes a network's layers, with weights of their own or from a group."""

    def __init__(self, group=None):
        self.group = group

    def conv(self, inputs, outputs, size, stride=1):
        if self.group is None:
            return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        return SharedConv(self.group, inputs, outputs, size, stride)

    def linear(self, inputs, outputs):
        return nn.Linear(inputs, outputs) if self.group is None else SharedLinear(self.group, inputs, outputs)


class Preactivated(nn.Module):
    """The block of Zagoruyko and Komodakis' wide residual networks."""

    def __init__(self, layers, inputs, outputs, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), layers.conv(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), layers.conv(outputs, outputs, 3)
        self.shortcut = None if inputs == outputs and stride == 1 else layers.conv(inputs, outputs, 1, stride)

    def forward(self, x):
        active = F.relu(self.bn1(x))
        residual = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    def __init__(self, layers, depth, width, classes):
        super().__init__()
        self.conv1, channels, blocks = layers.conv(3, 16, 3), 16, []
        for stage in range(3):
            for i in range((depth - 4) // 6):
                outputs = (16 << stage) * width
                blocks.append(Preactivated(layers, channels, outputs, 2 if stage > 0 and i == 0 else 1))
                channels = outputs
        self.blocks, self.bn, self.fc = nn.Sequential(*blocks), nn.BatchNorm2d(channels), layers.linear(channels, classes)

    def forward(self, x):
        return self.fc(F.relu(self.bn(self.blocks(self.conv1(x)))).mean((2, 3)))


class Bottleneck(nn.Module):
    """Of the residual networks for ImageNet, the stride in the 3x3 convolution."""

    def __init__(self, layers, inputs, inner, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = layers.conv(inputs, inner, 1), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = layers.conv(inner, inner, 3, stride), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = layers.conv(inner, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(layers.conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        inner = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(inner)) + (x if self.shortcut is None else self.shortcut(x)))


class WideResNet50(nn.Module):
    """WRN-50-2: ResNet-50 with 3x3 convolutions of twice the width."""

    def __init__(self, layers, width, classes):
        super().__init__()
        self.conv1, self.bn1 = layers.conv(3, 64, 7, 2), nn.BatchNorm2d(64)
        channels, blocks = 64, []
        for stage, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                blocks.append(Bottleneck(layers, channels, (64 << stage) * width, 256 << stage, 2 if stage > 0 and i == 0 else 1))
                channels = 256 << stage
        self.blocks, self.fc = nn.Sequential(*blocks), layers.linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


class TransformerLayer(nn.Module):
    def __init__(self, layers, width, rate=0.1):
        super().__init__()
        self.heads, self.rate = max(1, width // 64), rate
        self.query, self.key, self.value = (layers.linear(width, width) for _ in range(3))
        self.out, self.norm1 = layers.linear(width, width), nn.LayerNorm(width, 1e-12)
        self.wide, self.narrow = layers.linear(width, 4 * width), layers.linear(4 * width, width)
        self.norm2, self.dropout = nn.LayerNorm(width, 1e-12), nn.Dropout(rate)

    def forward(self, h):
        split = lambda x: x.unflatten(2, (self.heads, -1)).transpose(1, 2)
        attended = F.scaled_dot_product_attention(split(self.query(h)), split(self.key(h)), split(self.value(h)),
                                                  dropout_p=self.rate if self.training else 0.0)
        h = self.norm1(h + self.dropout(self.out(attended.transpose(1, 2).flatten(2))))
        return self.norm2(h + self.dropout(self.narrow(F.gelu(self.wide(h)))))


class Bert(nn.Module):
    """Its embeddings are the model's own; the first is the last layer too."""

    def __init__(self, layers, depth, width, length, vocabulary):
        super().__init__()
        self.word, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.segment, self.norm, self.dropout = nn.Embedding(2, width), nn.LayerNorm(width, 1e-12), nn.Dropout(0.1)
        self.encoder = nn.Sequential(*(TransformerLayer(layers, width) for _ in range(depth)))
        self.dense, self.head_norm = layers.linear(width, width), nn.LayerNorm(width, 1e-12)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for embedding in (self.word, self.position, self.segment):
            nn.init.normal_(embedding.weight, 0, 0.02)

    def forward(self, tokens, predicted):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.word(tokens) + self.position(places) + self.segment(torch.zeros_like(tokens))
        h = self.encoder(self.dropout(self.norm(h)))
        h = self.head_norm(F.gelu(self.dense(h.flatten(0, 1)[predicted])).float())
        return F.linear(h, self.word.weight, self.bias)


def training(args, group):
    """The model, its inputs and the labels."""
    layers = Layers(group)
    if args.model.startswith("bert"):
        depth, width = (24, 1024) if args.model == "bert-large" else map(int, args.model.split("-")[1:])
        model = Bert(layers, depth, width, args.length, args.vocabulary)
        predicted = torch.arange(args.batch * max(1, round(0.15 * args.length)))
        inputs = torch.randint(0, args.vocabulary, (args.batch, args.length)), predicted
        labels = torch.randint(0, args.vocabulary, predicted.shape)
    else:
        depth, width = map(int, args.model.split("-")[1:])
        model = WideResNet50(layers, width, args.classes) if depth == 50 else WideResNet(layers, depth, width, args.classes)
        inputs = (torch.randn(args.batch, 3, args.size, args.size).to(memory_format=torch.channels_last),)
        labels = torch.randint(0, args.classes, (args.batch,))
    if group is not None:
        group.build()
        model.group = group
    model = model.to(args.device)
    if not args.model.startswith("bert"):
        model = model.to(memory_format=torch.channels_last)
    return model, tuple(x.to(args.device) for x in inputs), labels.to(args.device)


def measured(args, budget):
    """What is printed of one network."""
    torch.manual_seed(1)
    on_gpu = args.device == "cuda"
    model, inputs, labels = training(args, None if budget == "dense" else Group(float(budget.rstrip("%")) / 100))
    parameters = sum(p.numel() for p in model.parameters())
    forward = torch.compile(model) if args.compile == "on" else model
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, foreach=True)
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    milliseconds = []
    for step in range(args.warmup + args.steps):
        wait()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16):
            outputs = forward(*inputs)
        F.cross_entropy(outputs.float(), labels).backward()
        optimizer.step()
        wait()
        if step >= args.warmup:
            milliseconds.append(1e3 * (time.perf_counter() - start))
    return {
        "program": f"torch {torch.__version__}",
        "model": args.model,
        "budget": budget,
        "compiled": args.compile,
        "batch": args.batch,
        "precision": "bf16",
        "parameters": parameters,
        "samples_per_second": 1e3 * args.batch / sorted(milliseconds)[len(milliseconds) // 2],
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "step_ms": milliseconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wrn-28-10", help="wrn-DEPTH-WIDTH (50: ImageNet's), bert-large, bert-LAYERS-WIDTH")
    parser.add_argument("--budget", default="25%", help="the SSN's share of the weights' parameters")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--compile", choices=["on", "off"], default="off")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    for budget in ("dense", args.budget):
        try:
            result = measured(args, budget)
        except (RuntimeError, AttributeError) as error:  # memory, what torch.compile cannot do, or an old PyTorch without it
            result = {"model": args.model, "budget": budget, "compiled": args.compile, "error": str(error).strip().splitlines()[0]}
        print(json.dumps(result), flush=True)
        if args.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
