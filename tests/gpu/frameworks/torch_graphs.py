#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: training that is captured in graphs with two private pools, and the same by torch.compile."""

import torch
from torch import nn

from torch_work import Ballast, batches, network, settle, train
from work import over_and_over, sha


def captured():
    settle()
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    data, target = batches(1)[0]

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(data), target).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graphs = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
            step()
        graphs.append(graph)
    for i in range(200):
        graphs[i % 2].replay()
    return sha(*(p.detach().cpu().numpy() for p in net.parameters()))


def compiled():
    settle()
    return train(torch.compile(network()), batches())


def main():
    settle()
    ballast = Ballast()
    over_and_over(lambda: (captured(), compiled()))
    ballast.check()


if __name__ == "__main__":
    main()
