"""The analytic gradient of `SparseNormal` against automatic differentiation of the dense normal density.

Measured in a process of its own that is bound to one core before JAX starts its threads.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, cholesky
from tables import markdown

from sbl_ppl.distributions import SparseNormal

SIZES = ((128, 64), (256, 512), (512, 256))


def dense(design, t, alpha, noise_variance):
    """log N(t; 0, C) as one would write it down."""
    C = noise_variance * jnp.eye(len(t)) + (design / alpha) @ design.T
    factor = cholesky(C, lower=True)
    return -jnp.sum(jnp.log(jnp.diagonal(factor))) - 0.5 * t @ cho_solve((factor, True), t)


def ours(design, t, alpha, noise_variance):
    return SparseNormal(design, alpha, noise_variance).log_prob(t)


def medians(functions: list[Callable[[], jax.Array]], repeats: int) -> list[float]:
    """Seconds, the functions taken in turn, so that what else the machine does meets all of them."""
    times = []
    for _ in range(repeats):
        row = []
        for function in functions:
            begin = time.perf_counter()
            jax.block_until_ready(function())
            row.append(time.perf_counter() - begin)
        times.append(row)
    return list(np.median(times, axis=0))


def run(quick: bool) -> str:
    command = [sys.executable, __file__, *["--quick"] * quick]
    one_core = {"preexec_fn": lambda: os.sched_setaffinity(0, {0})} if hasattr(os, "sched_setaffinity") else {}
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **one_core).stdout


def section(quick: bool) -> str:
    rows = []
    with jax.enable_x64(True):
        for n, m in SIZES[: 1 if quick else None]:
            rng = np.random.default_rng(0)
            design, t = jnp.asarray(rng.standard_normal((n, m))), jnp.asarray(rng.standard_normal(n))
            alpha, noise = jnp.asarray(np.exp(rng.normal(0, 3, m))), jnp.asarray(0.1)
            gradients = [jax.jit(jax.value_and_grad(f, (2, 3))) for f in (ours, dense)]
            values = [gradient(design, t, alpha, noise)[1] for gradient in gradients]
            error = max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in zip(*values, strict=True))
            calls = [lambda g=g: g(design, t, alpha, noise) for g in gradients]  # noqa: B023
            own, peer = medians(calls, 5 if quick else 60)
            rows.append((f"N = {n}, M = {m}", f"{peer / own:.2f}", f"{error:.0e}"))
    table = markdown(("value and gradient in α and σ²", "autodiff / ours", "largest relative difference"), rows)
    return f"""## The gradient of the collapsed likelihood

Time of JAX's reverse mode through a dense Cholesky factorisation over that of `SparseNormal`, both compiled, float64,
one core, medians of alternating calls.

{table}
"""


if __name__ == "__main__":
    print(section("--quick" in sys.argv))
