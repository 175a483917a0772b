"""Tipping's two fixed-point iterations from the full model (T01 appendix A)."""

from __future__ import annotations

import numpy as np

from .problem import FLOOR, Problem, Progress, Solution, solution_of


def iterate_fixed_point(problem: Problem, method: str, max_steps: int, bar: Progress) -> Solution:
    """T01's iterations from the full model: MacKay's updates, eq. (44), (46), or EM, eq. (43), (50).

    A column leaves when its alpha passes `high`, or, with a prior that allows exact zeros, when its weight is hardly
    determined (gamma < 0.05) and its best alpha is infinite: the fixed points approach infinity only in the limit.
    """
    prior, noise = problem.prior, problem.noise
    model = problem.model(1.0 / noise.fixed if noise.fixed else 10.0)
    everything = np.flatnonzero(np.abs(problem.z) > 0)
    model.include(everything, np.full(len(everything), problem.design.n_columns / model.n))
    model.condense()
    history: list[float] = []
    for _ in range(max_steps):
        chosen = prior.at(model.index)
        gamma = 1.0 - model.alpha * model.Sigma.diagonal()
        twice = 2.0 * chosen.e
        if method == "mackay":
            alpha = (gamma + twice) / (model.mu**2 + 2.0 * chosen.b + 1e-300)
            left = model.n - gamma.sum()
            variance = (model.residual2 + 2.0 * noise.rate) / (left + 2.0 * (noise.shape + 1.0))
        else:
            alpha = (1.0 + twice) / (model.mu**2 + model.Sigma.diagonal() + 2.0 * chosen.b)
            variance = (model.residual2 + gamma.sum() / model.beta + 2.0 * noise.rate) / (
                model.n + 2.0 * (noise.shape + 1.0)
            )
        alpha = np.clip(alpha, chosen.low, chosen.high)
        beta = model.beta if noise.fixed else 1.0 / max(variance, FLOOR)
        change = max(np.abs(np.log(alpha / model.alpha)).max(initial=0.0), abs(np.log(beta / model.beta)))
        gone = alpha >= chosen.high
        if prior.smooth and len(alpha):
            gone |= (gamma < 0.05) & np.isinf(chosen.maximise(*model.statistics(), model.beta)[0])
        model.alpha, model.beta = alpha, beta
        for j in np.flatnonzero(gone)[::-1]:
            model.drop(int(j))
        model.condense()
        value = model.log_evidence + noise.log_prior(model.beta)
        value += (prior.at(model.index).log_prior(model.alpha, model.beta) - prior.at(model.index).log_pruned()).sum()
        history.append(float(value))
        bar.update(model.size, history[-1])
        if not gone.any() and change < 1e-6:
            converged, reason = True, f"the {method} updates stand still"
            break
    else:
        converged, reason = (
            False,
            f"not converged after max_steps={max_steps} {method} updates: raise it or use method='fast'",
        )
    return solution_of(model, noise, converged, reason, history)
