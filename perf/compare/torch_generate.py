#!/usr/bin/env python3
"""Weights of a plan generated in PyTorch, forward and backward, in the published form; see bench_generate.

The published form: a slice of the group as K rows, each times its coefficient, summed; tiles, each times its
mask; the gradients by autograd. Reads what `ssn plan --json` prints, and prints one JSON object.
"""
import argparse
import json
import statistics
import time

import torch


def weight_of(layer, theta, coefficients):
    shape, count = layer["shape"], layer["templates"]
    size = 1
    for extent in shape:
        size *= extent
    if layer["method"] == "upsample":
        window = coefficients.shape[1]
        repeats = -(-theta.numel() // window)
        tiles = [theta] + [theta * mask.repeat(repeats)[: theta.numel()] for mask in coefficients]
        return torch.cat(tiles)[:size].view(shape)
    first = layer["offsets"][0]
    if layer["method"] == "exact":
        return theta[first : first + size].view(shape)
    rows = theta[first : first + count * size].view(count, *shape)  # --allocation ref_block: in one piece
    return (rows * coefficients.view(count, *[1] * len(shape))).sum(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", help="file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    with open(args.plan, encoding="utf-8") as file:
        plan = json.load(file)
    window = plan["options"]["window"]
    thetas = [torch.randn(group["parameters"], requires_grad=True) for group in plan["groups"]]
    masks = [
        torch.randn(max(plan["layers"][i]["tiles"] for i in range(len(plan["layers"]))
                        if plan["layers"][i]["group"] == g) - 1, window, requires_grad=True)
        for g in range(len(thetas))
    ]
    work = []
    for layer in plan["layers"]:
        group = layer["group"]
        if layer["method"] == "upsample":
            coefficients = masks[group][: layer["tiles"] - 1]
        else:
            coefficients = torch.randn(layer["templates"], requires_grad=True)
        work.append((layer, thetas[group], coefficients, torch.randn(layer["shape"])))
    forward, backward = [], []
    for _ in range(args.rounds + 1):  # the first touches the memory
        start = time.perf_counter()
        weights = [weight_of(layer, theta, coefficients) for layer, theta, coefficients, _ in work]
        middle = time.perf_counter()
        torch.autograd.backward(weights, [gradient for _, _, _, gradient in work])
        end = time.perf_counter()
        forward.append(1e3 * (middle - start))
        backward.append(1e3 * (end - middle))
        for theta in thetas:
            theta.grad.zero_()
    rows = [("forward, published form", forward[1:]), ("backward, published form", backward[1:])]
    print(json.dumps({"rows": [{"name": n, "ms": statistics.median(t), "best_ms": min(t)} for n, t in rows]}))


if __name__ == "__main__":
    main()
