#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network with jax.pmap on all GPUs, deterministically. Needs JAX.

  jax_pmap.py GIB STEPS GO

Says "ready" after a first step, waits for the file GO, and trains. Each step changes all of GIB on each GPU, and sums
gradients over the GPUs. The last line has a checksum of the losses and weights.
"""

import functools
import hashlib
import os
import sys
import time

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"

import jax
import jax.numpy as jnp
import numpy

WIDTH, DEPTH, BATCH = 2048, 6, 512
PIECE = 1 << 28  # floats


def loss(weights, data):
    x = data
    for matrix in weights:
        x = jnp.tanh(x @ matrix)
    return jnp.mean(jnp.square(x - 0.5))


@functools.partial(jax.pmap, axis_name="gpus", donate_argnums=0)
def train(weights, data):
    value, gradient = jax.value_and_grad(loss)(weights, data)
    gradient, value = jax.lax.pmean((gradient, value), "gpus")
    return [w - 0.1 * g for w, g in zip(weights, gradient)], value


@functools.partial(jax.pmap, donate_argnums=0)
def add_one(piece):
    return piece + 1


@jax.pmap
def ends(piece):
    return jnp.min(piece), jnp.max(piece)


def main():
    n_pieces, steps, go = max(1, int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    n = jax.local_device_count()
    keys = jax.random.split(jax.random.PRNGKey(1), DEPTH + 1)
    make = jax.pmap(lambda key: jax.random.normal(key, (WIDTH, WIDTH)) * 0.02)
    weights = [make(jnp.stack([key] * n)) for key in keys[:-1]]
    data = jax.random.normal(keys[-1], (n, BATCH, WIDTH))
    zeros = jax.pmap(lambda _: jnp.zeros(PIECE, jnp.float32))
    memory = [zeros(jnp.arange(n)) for _ in range(n_pieces)]
    digest = hashlib.sha256()

    def step():
        nonlocal weights, memory
        weights, value = train(weights, data)
        memory = [add_one(piece) for piece in memory]
        digest.update(numpy.asarray(value).tobytes())

    step()
    jax.block_until_ready(memory)
    print(f"ready rank=0 pid={os.getpid()}", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    for _ in range(steps):
        step()
    for piece in memory:
        if any((numpy.asarray(end) != steps + 1).any() for end in ends(piece)):
            sys.exit("its memory is wrong")
    for weight in weights:
        digest.update(numpy.asarray(weight).tobytes())
    print(f"jax_pmap gpus={n} sum={digest.hexdigest()[:16]} verified", flush=True)


if __name__ == "__main__":
    main()
