"""An MLP as PyTorch's users spread it: DistributedDataParallel over gloo, a thread for each process, AdamW, data in memory.

    python mlp.py [--workers 4] [--batch 256] [--steps 200] [--hidden 1024,1024]

Beside it, with a core's worth of threads for each member (see docs/bench.md):

    RAYON_NUM_THREADS=1 starling run --min-peers 4 --model mlp:1024,1024 --batch-size 256 --steps 200 --checkpoint-every 0 ...

Needs torch.
"""

import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAMPLES, FEATURES, CLASSES = 1437, 64, 10
WARM_UP = 10


def work(rank, flags, port):
    torch.set_num_threads(1)
    if flags.workers > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=flags.workers)
    # As many as Starling's digits have; what they show does not matter to the time.
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand((SAMPLES, FEATURES), generator=generator)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    widths = [FEATURES, *map(int, flags.hidden.split(","))]
    layers = [part for pair in zip(widths, widths[1:]) for part in (nn.Linear(*pair), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))
    model = DistributedDataParallel(model) if flags.workers > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.0)
    loss = nn.CrossEntropyLoss()
    for step in range(-WARM_UP, flags.steps):
        if step == 0:
            flags.workers > 1 and dist.barrier()
            begun = time.perf_counter()
        batch = torch.randint(0, SAMPLES, (flags.batch,), generator=generator)
        share = batch[rank * flags.batch // flags.workers : (rank + 1) * flags.batch // flags.workers]
        optimizer.zero_grad()
        loss(model(inputs[share]), labels[share]).backward()
        optimizer.step()
    if flags.workers > 1:
        dist.barrier()
    if rank == 0:
        seconds = time.perf_counter() - begun
        print(json.dumps({"samples_per_s": round(flags.batch * flags.steps / seconds), "ms_per_step": round(1e3 * seconds / flags.steps, 2)}))
    if flags.workers > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in (("workers", 4), ("batch", 256), ("steps", 200)):
        parser.add_argument(f"--{flag}", type=int, default=default)
    parser.add_argument("--hidden", default="1024,1024")
    flags = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if flags.workers == 1:
        work(0, flags, port)
    else:
        mp.spawn(work, (flags, port), flags.workers)


if __name__ == "__main__":
    main()
