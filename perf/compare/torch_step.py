#!/usr/bin/env python3
"""Training steps in PyTorch, of a wide residual network, BERT, or one of torchvision's networks (resnet-18,
efficientnet-b0, ...); images are random and channels last. See bench_step.

Prints one JSON object with the milliseconds of every step.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        active = F.relu(self.bn1(x), inplace=True)
        residual = self.conv2(F.relu(self.bn2(self.conv1(active)), inplace=True))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    def __init__(self, depth, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        blocks, channels = [], 16
        for stage in range(3):
            for i in range((depth - 4) // 6):
                outputs = (16 << stage) * width
                blocks.append(Block(channels, outputs, 2 if stage > 0 and i == 0 else 1))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.bn(self.blocks(self.conv1(x))), inplace=True)
        return self.fc(x.mean((2, 3)))


class Bert(nn.Module):
    def __init__(self, layers, width, length, vocabulary):
        super().__init__()
        self.word, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.segment = nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width, 1e-12), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.1, "gelu", 1e-12, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.dense, self.head_norm = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for table in (self.word, self.position, self.segment):
            nn.init.normal_(table.weight, 0, 0.02)  # with PyTorch's 1, products of denormal gradients take long

    def forward(self, tokens, predicted):
        sentence = torch.zeros_like(tokens)
        h = self.word(tokens) + self.position(torch.arange(tokens.shape[1])) + self.segment(sentence)
        h = self.encoder(self.dropout(self.norm(h)), src_key_padding_mask=sentence.bool())
        h = self.head_norm(F.gelu(self.dense(h.flatten(0, 1)[predicted])).float())
        return F.linear(h, self.word.weight, self.bias)


def training(args):
    """The model, its inputs and the labels."""
    kind, *sizes = args.model.split("-")
    if kind == "bert":
        layers, width = map(int, sizes)
        tokens = torch.randint(0, args.vocabulary, (args.batch, args.length))
        predicted = torch.arange(args.batch * round(0.15 * args.length))
        model = Bert(layers, width, args.length, args.vocabulary)
        return model, (tokens, predicted), torch.randint(0, args.vocabulary, predicted.shape)
    if kind == "wrn":
        model = WideResNet(*map(int, sizes), args.classes)
    else:
        import torchvision  # only here, so that the other networks need only PyTorch
        name = kind + ("_" if kind == "efficientnet" else "") + "".join(sizes)
        model = getattr(torchvision.models, name)(num_classes=args.classes)
    model = model.to(memory_format=torch.channels_last)
    images = torch.randn(args.batch, 3, args.size, args.size).to(memory_format=torch.channels_last)
    return model, (images,), torch.randint(0, args.classes, (args.batch,))


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="wrn-16-2", help="wrn-DEPTH-WIDTH, bert-LAYERS-WIDTH, resnet-18, efficientnet-b0, ...")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: automatic mixed precision")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    return parser


def main():
    args = arguments(__doc__).parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    model, inputs, labels = training(args)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, nesterov=True)

    milliseconds = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            outputs = model(*inputs)
        F.cross_entropy(outputs.float(), labels).backward()
        optimizer.step()
        if step >= args.warmup:
            milliseconds.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({
        "program": f"torch {torch.__version__}",
        "model": args.model,
        "batch": args.batch,
        "threads": args.threads,
        "precision": args.precision,
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_ms": milliseconds,
    }))


if __name__ == "__main__":
    main()
