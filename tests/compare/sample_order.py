"""Which samples a run visits when, as `topology` draws it (docs/adr/0084): so that another program can train on the same ones in the same order.

Needs numpy and blake3.
"""

import blake3
import numpy as np

MASK = (1 << 64) - 1
ROUNDS = 64


class SplitMix64:
    """Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014."""

    def __init__(self, purpose, seed, index):
        told = purpose.encode() + b"\0" + seed.to_bytes(8, "little") + index.to_bytes(8, "little")
        self.state = int.from_bytes(blake3.blake3(told).digest()[:8], "little")

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)

    def below(self, bound):
        threshold = ((1 << 32) - bound) % bound
        while True:
            product = (self.next() >> 32) * bound
            if product & 0xFFFFFFFF >= threshold:
                return product >> 32


def order(seed, samples, epoch):
    """The samples of an epoch, in the order in which they are visited."""
    generator = SplitMix64("starling sample order", seed, epoch)
    rounds = [(generator.below(samples), generator.next() >> 32) for _ in range(ROUNDS)]
    at = np.arange(samples, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    for total, key in rounds:
        other = (np.uint64(total) + np.uint64(samples) - at) % np.uint64(samples)
        mixed = np.maximum(at, other) ^ np.uint64(key)
        mixed ^= mixed >> np.uint64(16)
        mixed = (mixed * np.uint64(0x7FEB352D)) & low
        mixed = ((mixed ^ (mixed >> np.uint64(15))) * np.uint64(0x846CA68B)) & low
        at = np.where(mixed >> np.uint64(31) == 1, other, at)
    return at.astype(np.int64)


def split(seed, total, permille):
    """The samples to train on and those held out, ascending."""
    generator = SplitMix64("starling held-out split", seed, 0)
    drawn = list(range(total))
    for last in range(total - 1, 0, -1):
        other = generator.below(last + 1)
        drawn[last], drawn[other] = drawn[other], drawn[last]
    count = 0 if permille == 0 else min(max((total * permille + 500) // 1000, 1), total - 1)
    return np.array(sorted(drawn[count:])), np.array(sorted(drawn[:count]))
