"""Tipping's two fixed-point iterations from the full model (T01 appendix A)."""

from __future__ import annotations

import numpy as np

from .evidence import ActiveModel
from .priors import BoundPrior
from .problem import FLOOR, Noise, Problem, Progress, Solution, Start, solution_of

Array = np.ndarray


def iterate_fixed_point(problem: Problem, method: str, max_steps: int, bar: Progress, start: Start | None) -> Solution:
    """T01's iterations from the full model: MacKay's updates, eq. (44), (46), or EM, eq. (43), (50).

    A column leaves when its best alpha is infinite and its weight is hardly determined (gamma < 0.05) or its alpha has
    reached `high`: the fixed points approach infinity only in the limit.
    """
    prior, noise = problem.prior, problem.noise
    model = problem.model(1.0 / noise.fixed if noise.fixed else 10.0)
    if start is None:
        everything = np.flatnonzero(problem.z)
        model.include(everything, np.full(len(everything), problem.design.n_columns / max(1, model.n)))
    else:
        model.include(*start[:2])
        model.beta = start[2]
    model.condense()
    history: list[float] = []
    converged, reason = (
        False,
        f"not converged after max_steps={max_steps} {method} updates: raise it or use method='fast'",
    )
    for _ in range(max_steps):
        alpha, beta = _update(model, prior.at(model.index), noise, method)
        change = max(np.abs(np.log(alpha / model.alpha)).max(initial=0.0), abs(np.log(beta / model.beta)))
        model.alpha, model.beta = alpha, beta
        model.condense()
        pruned = _prune(model, prior)
        history.append(_objective(model, prior, noise))
        bar.update(model.size, history[-1])
        if not pruned and change < 1e-6:
            converged, reason = True, f"the {method} updates stand still"
            break
    return solution_of(model, noise, converged, reason, history)


def _update(model: ActiveModel, prior: BoundPrior, noise: Noise, method: str) -> tuple[Array, float]:
    """New precisions of the active columns and of the noise."""
    variance, twice = model.Sigma.diagonal(), 2.0 * prior.e
    gamma = 1.0 - model.alpha * variance
    count, rest = 2.0 * (noise.shape + 1.0), model.residual2 + 2.0 * noise.rate
    if method == "mackay":
        alpha = (gamma + twice) / (model.mu**2 + 2.0 * prior.b + 1e-300)
        noise_variance = rest / (model.n - gamma.sum() + count)
    else:
        alpha = (1.0 + twice) / (model.mu**2 + variance + 2.0 * prior.b)
        noise_variance = (rest + gamma.sum() / model.beta) / (model.n + count)
    beta = model.beta if noise.fixed else 1.0 / max(noise_variance, FLOOR)
    return np.minimum(np.maximum(alpha, prior.low), prior.high), beta


def _prune(model: ActiveModel, prior: BoundPrior) -> bool:
    """Drop columns that have become useless, one after the other; whether any was."""
    pruned = False
    while model.size:
        chosen = prior.at(model.index)
        s, q2 = model.statistics()
        best, _ = chosen.maximise(s, q2, model.beta)
        useless = np.flatnonzero(np.isinf(best) & ((s < 0.05 * model.alpha) | (model.alpha >= chosen.high)))
        if not len(useless):
            break
        worth = chosen.at(useless).contribution(model.alpha[useless], s[useless], q2[useless], model.beta)
        worst = int(useless[worth.argmin()])
        if model.delicate:  # a downdate would lose all digits of nearly dependent columns
            model.forget(np.array([worst]))
            model.condense()
        else:
            model.drop(worst)
        pruned = True
    if pruned:
        model.condense()
    return pruned


def _objective(model: ActiveModel, prior: BoundPrior, noise: Noise) -> float:
    value = model.log_evidence + noise.log_prior(model.beta)
    return float(value + prior.total(model.index, model.alpha, model.beta, model.m))
