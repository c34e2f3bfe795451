"""A `gpt` of Starling's in PyTorch: the same layers, initial values, samples in the same order, optimizer and schedule. Alone, or as its users
spread it: DistributedDataParallel over gloo, a thread for each process.

    python gpt.py values v.safetensors                                     draws initial values
    python gpt.py train text.txt v.safetensors --steps 600 [--workers 4]   trains, and says bits per byte of what is held out

Beside it, with the same settings (see docs/bench.md):

    starling run --model gpt:4x128 --data text.txt --init v.safetensors --steps 600 ...

Needs torch, numpy, safetensors and blake3.
"""

import argparse
import json
import math
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sample_order

VOCABULARY = 256


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, turn):
        samples, length, width = x.shape
        q, k, v = (
            project(x).view(samples, length, self.heads, -1).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(rotated(q, turn), rotated(k, turn), v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(samples, length, width))


def rotated(x, turn):
    cos, sin = turn
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(width), Norm(width)
        self.self_attn, self.mlp = Attention(width, heads), Mlp(width, inner)

    def forward(self, x, turn):
        x = x + self.self_attn(self.input_layernorm(x), turn)
        return x + self.mlp(self.post_attention_layernorm(x))


class Inner(nn.Module):
    def __init__(self, layers, width, heads, inner):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads, inner) for _ in range(layers))
        self.norm = Norm(width)


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, inner, context):
        super().__init__()
        self.model = Inner(layers, width, heads, inner)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        side = width // heads
        angles = torch.outer(torch.arange(context).float(), 10000.0 ** (-torch.arange(0, side, 2).float() / side))
        angles = torch.cat((angles, angles), -1)
        self.turn = (angles.cos(), angles.sin())

    def forward(self, windows):
        x = self.model.embed_tokens(windows[:, :-1])
        for layer in self.model.layers:
            x = layer(x, self.turn)
        logits = self.lm_head(self.model.norm(x))
        return F.cross_entropy(logits.reshape(-1, VOCABULARY), windows[:, 1:].reshape(-1))


def built(flags):
    return Gpt(flags.layers, flags.width, flags.heads, flags.inner, flags.context)


def draw(flags):
    torch.manual_seed(flags.seed)
    model = built(flags)
    for name, value in model.named_parameters():
        if "norm" not in name:
            nn.init.normal_(value, std=0.02)
    save_file({name: value.detach() for name, value in model.named_parameters()}, flags.values)


def rate(flags, step):
    """Of step `step`, counted from 1: up evenly, then along half a cosine, to zero behind the last one."""
    if step <= flags.warm_up:
        return flags.learning_rate * step / flags.warm_up
    done = (step - 1 - flags.warm_up) / (flags.steps - flags.warm_up)
    return flags.learning_rate * (1 + math.cos(math.pi * done)) / 2


def train(rank, flags, port):
    torch.set_num_threads(1 if flags.workers > 1 else flags.threads)
    if flags.workers > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=flags.workers)
    text = torch.from_numpy(np.fromfile(flags.text, dtype=np.uint8)).long()
    total = (len(text) - 1) // flags.context
    training, held_out = sample_order.split(flags.seed, total, round(flags.held_out * 1000))
    window = lambda numbers: torch.stack([text[at * flags.context : (at + 1) * flags.context + 1] for at in numbers])
    model = built(flags)
    model.load_state_dict(load_file(flags.values))
    trained = DistributedDataParallel(model) if flags.workers > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    epoch, order, done = 0, sample_order.order(flags.seed, len(training), 0), 0
    begun, samples = time.perf_counter(), 0
    for step in range(1, flags.steps + 1):
        if done == len(training):
            epoch, done = epoch + 1, 0
            order = sample_order.order(flags.seed, len(training), epoch)
        batch = training[order[done : done + flags.batch]]
        done, samples = done + len(batch), samples + len(batch)
        share = np.array_split(batch, flags.workers)[rank]
        for group in optimizer.param_groups:
            group["lr"] = rate(flags, step)
        optimizer.zero_grad()
        # Means of shares that differ in size are weighted, as a mean over all members is.
        loss = trained(window(share)) * (len(share) * flags.workers / len(batch))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), flags.clip)
        optimizer.step()
    seconds = time.perf_counter() - begun
    if rank == 0:
        with torch.no_grad():
            parts = [held_out[at : at + 64] for at in range(0, len(held_out), 64)]
            nats = sum(float(model(window(part))) * len(part) for part in parts) / len(held_out)
        told = {"bits_per_byte": nats / math.log(2), "steps": flags.steps, "windows": samples}
        print(json.dumps(told | {"seconds": round(seconds, 2), "windows_per_s": round(samples / seconds, 1)}))
    if flags.workers > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name in ("values", "train"):
        verb = verbs.add_parser(name)
        verb.set_defaults(verb=name)
        if name == "train":
            verb.add_argument("text")
        verb.add_argument("values")
        for flag, default in (("layers", 4), ("width", 128), ("heads", 4), ("inner", 352), ("context", 128), ("seed", 42)):
            verb.add_argument(f"--{flag}", type=int, default=default)
        for flag, default in (("steps", 600), ("batch", 32), ("warm-up", 100), ("workers", 1), ("threads", 1)):
            verb.add_argument(f"--{flag}", type=int, default=default)
        for flag, default in (("learning-rate", 0.003), ("clip", 1.0), ("held-out", 0.02)):
            verb.add_argument(f"--{flag}", type=float, default=default)
    flags = parser.parse_args()
    if flags.verb == "values":
        draw(flags)
    elif flags.workers == 1:
        train(0, flags, 0)
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        mp.spawn(train, (flags, port), flags.workers)


if __name__ == "__main__":
    main()
