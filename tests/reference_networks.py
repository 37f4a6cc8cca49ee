"""Networks in PyTorch that torchvision does not have, with the names that their users know: the ResNets for CIFAR, wide
residual networks, and transformers' BertForMaskedLM and AlbertForMaskedLM, without dropout."""
import math

import torch
from torch import nn
from torch.nn import functional


def module(**children):
    """A module of these children and no behaviour."""
    result = nn.Module()
    for name, child in children.items():
        setattr(result, name, child)
    return result


class CifarBlock(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.stride, self.more = stride, outer - inner

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        before = self.more // 2
        return functional.relu(y + functional.pad(x, (0, 0, 0, 0, before, self.more - before)))


class CifarResNet(nn.Module):
    """resnet-20, ...: shortcuts without parameters."""

    def __init__(self, depth, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        inner, count = 16, (depth - 2) // 6
        for stage in range(3):
            outer, blocks = 16 << stage, []
            for i in range(count):
                blocks.append(CifarBlock(inner, outer, 2 if stage and not i else 1))
                inner = outer
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        h = functional.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(h))).mean((2, 3)))


class WideBlock(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.convShortcut = None if inner == outer else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x):
        active = functional.relu(self.bn1(x))
        y = self.conv2(functional.relu(self.bn2(self.conv1(active))))
        return y + (self.convShortcut(active) if self.convShortcut else x)


class WideResNet(nn.Module):
    """wrn-16-2, ..."""

    def __init__(self, depth, width, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        inner, count = 16, (depth - 4) // 6
        for stage in range(3):
            outer, blocks = (16 << stage) * width, []
            for i in range(count):
                blocks.append(WideBlock(inner, outer, 2 if stage and not i else 1))
                inner = outer
            setattr(self, f"block{stage + 1}", module(layer=nn.Sequential(*blocks)))
        self.bn1 = nn.BatchNorm2d(inner)
        self.fc = nn.Linear(inner, classes)

    def forward(self, x):
        h = self.conv1(x)
        for block in (self.block1, self.block2, self.block3):
            h = block.layer(h)
        return self.fc(functional.relu(self.bn1(h)).mean((2, 3)))


def norm(width):
    return nn.LayerNorm(width, 1e-12)


def embeddings(vocabulary, length, width):
    return module(word_embeddings=nn.Embedding(vocabulary, width), position_embeddings=nn.Embedding(length, width),
                  token_type_embeddings=nn.Embedding(2, width), LayerNorm=norm(width))


def embed(e, tokens, segments):
    places = torch.arange(tokens.shape[1])
    return e.LayerNorm(e.word_embeddings(tokens) + e.token_type_embeddings(segments) + e.position_embeddings(places))


def attend(projections, x, heads, lengths):
    def split(y):
        return y.unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = split(projections.query(x)), split(projections.key(x)), split(projections.value(x))
    padding = torch.arange(x.shape[1]) >= lengths[:, None]
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(padding[:, None, None, :], -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def predict(head, bias, word_embeddings, rows):
    h = head.LayerNorm(functional.gelu(head.dense(rows)))
    return h @ word_embeddings.weight.T + bias


class Bert(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.heads = heads

        def layer():
            attention = module(
                self=module(query=nn.Linear(width, width), key=nn.Linear(width, width), value=nn.Linear(width, width)),
                output=module(dense=nn.Linear(width, width), LayerNorm=norm(width)))
            return module(attention=attention, intermediate=module(dense=nn.Linear(width, 4 * width)),
                          output=module(dense=nn.Linear(4 * width, width), LayerNorm=norm(width)))
        self.bert = module(embeddings=embeddings(vocabulary, length, width),
                           encoder=module(layer=nn.ModuleList(layer() for _ in range(layers))))
        self.cls = module(predictions=module(transform=module(dense=nn.Linear(width, width), LayerNorm=norm(width)),
                                             bias=nn.Parameter(torch.zeros(vocabulary))))

    def forward(self, tokens, lengths, predicted, segments):
        h = embed(self.bert.embeddings, tokens, segments)
        for layer in self.bert.encoder.layer:
            own, out = getattr(layer.attention, "self"), layer.attention.output
            h = out.LayerNorm(h + out.dense(attend(own, h, self.heads, lengths)))
            h = layer.output.LayerNorm(h + layer.output.dense(functional.gelu(layer.intermediate.dense(h))))
        head = self.cls.predictions
        return predict(head.transform, head.bias, self.bert.embeddings.word_embeddings, h.flatten(0, 1)[predicted])


class Albert(nn.Module):
    """With a group of layers for each layer: nothing is shared."""

    def __init__(self, layers, width, heads, embedding, length, vocabulary):
        super().__init__()
        self.heads = heads

        def group():
            attention = module(query=nn.Linear(width, width), key=nn.Linear(width, width),
                               value=nn.Linear(width, width), dense=nn.Linear(width, width), LayerNorm=norm(width))
            layer = module(attention=attention, ffn=nn.Linear(width, 4 * width), ffn_output=nn.Linear(4 * width, width),
                           full_layer_layer_norm=norm(width))
            return module(albert_layers=nn.ModuleList([layer]))
        self.albert = module(
            embeddings=embeddings(vocabulary, length, embedding),
            encoder=module(embedding_hidden_mapping_in=nn.Linear(embedding, width),
                           albert_layer_groups=nn.ModuleList(group() for _ in range(layers))))
        self.predictions = module(dense=nn.Linear(width, embedding), LayerNorm=norm(embedding),
                                  bias=nn.Parameter(torch.zeros(vocabulary)))

    def forward(self, tokens, lengths, predicted, segments):
        e, encoder = self.albert.embeddings, self.albert.encoder
        h = encoder.embedding_hidden_mapping_in(embed(e, tokens, segments))
        for group in encoder.albert_layer_groups:
            layer = group.albert_layers[0]
            own = layer.attention
            h = own.LayerNorm(h + own.dense(attend(own, h, self.heads, lengths)))
            h = layer.full_layer_layer_norm(h + layer.ffn_output(functional.gelu(layer.ffn(h))))
        return predict(self.predictions, self.predictions.bias, e.word_embeddings, h.flatten(0, 1)[predicted])
