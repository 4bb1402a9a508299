# SPDX-License-Identifier: Apache-2.0
"""What the scripts with PyTorch share: a setting in which its results do not differ, and memory to be moved."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

from work import sha

BALLAST_GIB = float(os.environ.get("FRAMEWORK_BALLAST_GIB", "3"))


def settle(seed=1):
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)


class Ballast:
    """Memory that must still be right at the end."""

    def __init__(self, gib=BALLAST_GIB):
        self.words = torch.arange(int(gib * 2**28), dtype=torch.int32, device="cuda")

    def check(self):
        right = torch.arange(self.words.numel(), dtype=torch.int32, device="cuda")
        if not torch.equal(self.words, right):
            raise SystemExit("memory has changed")


def network(width=512, depth=4):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, 10)).cuda()


def train(net, batches):
    """The sum of all parameters afterwards."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for data, target in batches:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(data), target).backward()
        optimizer.step()
    return sha(*(p.detach().cpu().numpy() for p in net.parameters()))


def batches(n=20, rows=256, width=512):
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(rows, width, generator=generator).cuda(),
             torch.randint(0, 10, (rows,), generator=generator).cuda()) for _ in range(n)]
