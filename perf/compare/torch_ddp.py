#!/usr/bin/env python3
"""Training steps in PyTorch's DistributedDataParallel over gloo, of the networks of torch_step.py; a process is a rank,
started by Open MPI's mpirun. See ddp.sh.

Steps with the sum over the ranks and steps without (no_sync) take turns; the sum alone is an allreduce of as many bytes.
What is hidden of it is the sum's time less what a step lasts longer with it than without. Rank 0 prints one JSON object.
"""
import json
import os
import statistics
import time

os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
import torch
import torch.distributed as dist
from torch.nn import functional as F

import torch_step


def main():
    parser = torch_step.arguments(__doc__)
    parser.add_argument("--bucket", type=float, default=25, help="MB of gradients that are summed at once (DDP's bucket_cap_mb)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model, inputs, labels = torch_step.training(args)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=args.bucket)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, nesterov=True)
    gradient = torch.zeros(sum(p.numel() for p in model.parameters()))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(ddp(*inputs).float(), labels).backward()
        optimizer.step()

    def without_sum():
        with ddp.no_sync():
            step()

    def milliseconds(what):
        """The slowest rank's."""
        dist.barrier()
        start = time.perf_counter()
        what()
        took = torch.tensor([1e3 * (time.perf_counter() - start)])
        dist.all_reduce(took, dist.ReduceOp.MAX)
        return took.item()

    kinds = {"step_ms": step, "no_sync_ms": without_sum, "sum_ms": lambda: dist.all_reduce(gradient)}
    times = {name: [] for name in kinds}
    for turn in range(args.warmup + args.steps):
        for name, what in kinds.items():
            took = milliseconds(what)
            if turn >= args.warmup:
                times[name].append(took)
    if dist.get_rank() == 0:
        middle = {name: statistics.median(values) for name, values in times.items()}
        exposed = max(0, middle["step_ms"] - middle["no_sync_ms"])
        print(json.dumps({
            "program": f"torch {torch.__version__} DDP, gloo",
            "model": args.model,
            "ranks": dist.get_world_size(),
            "batch": args.batch,
            "parameters": gradient.numel(),
            **{name: round(value, 1) for name, value in middle.items()},
            "hidden_share": round(max(0, 1 - exposed / middle["sum_ms"]), 3),
        }))


main()
