#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX, which takes 0.9 of the card at its start."""

import os

os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.9"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
)

import jax
import jax.numpy as jnp
import numpy

from work import over_and_over, sha


def main():
    keys = jax.random.split(jax.random.PRNGKey(1), 4)
    data = jax.random.normal(keys[3], (512, 1024))

    @jax.jit
    def step(weights):
        def loss(w):
            x = data
            for matrix in w:
                x = jnp.tanh(x @ matrix)
            return jnp.mean(x**2)

        return [a - 0.1 * g for a, g in zip(weights, jax.grad(loss)(weights))]

    ballast = jnp.arange(1 << 29, dtype=jnp.int32)

    def work():
        weights = [jax.random.normal(key, (1024, 1024)) * 0.05 for key in keys[:3]]
        for _ in range(100):
            weights = step(weights)
        return sha(*(numpy.asarray(w) for w in weights))

    over_and_over(work)
    if not bool((ballast == jnp.arange(1 << 29, dtype=jnp.int32)).all()):
        raise SystemExit("memory has changed")


if __name__ == "__main__":
    main()
