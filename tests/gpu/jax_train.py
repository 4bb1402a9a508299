#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with JAX, deterministically; prints rate and result as JSON."""

import argparse
import hashlib
import json
import os
import time

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
)

import jax
import jax.numpy as jnp
import numpy


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--width", type=int, default=2048)
    args = parser.parse_args()

    keys = jax.random.split(jax.random.PRNGKey(1), 6)
    weights = [jax.random.normal(k, (args.width, args.width)) * 0.02 for k in keys[:4]]
    data = jax.random.normal(keys[4], (1024, args.width))
    target = jax.random.normal(keys[5], (1024, args.width))

    def loss(w):
        x = data
        for matrix in w:
            x = jnp.tanh(x @ matrix)
        return jnp.mean((x - target) ** 2)

    @jax.jit
    def step(w):
        value, gradient = jax.value_and_grad(loss)(w)
        return [a - 0.1 * g for a, g in zip(w, gradient)], value

    for _ in range(20):
        weights, value = step(weights)
    value.block_until_ready()
    start = time.perf_counter()
    for _ in range(args.steps):
        weights, value = step(weights)
    value.block_until_ready()
    seconds = time.perf_counter() - start

    digest = hashlib.sha256()
    for matrix in weights:
        digest.update(numpy.asarray(matrix).tobytes())
    print(
        json.dumps(
            {
                "rate": args.steps / seconds,
                "steps_per_second": args.steps / seconds,
                "result": f"loss {float(value):.6f} sha {digest.hexdigest()[:16]}",
            }
        )
    )


if __name__ == "__main__":
    main()
