"""The evidence of a dictionary and a prior, log p(t | dictionary, prior), with all hyperparameters integrated out.

    sbl.log_evidence(fit, noise_prior=(2.0, 0.01)).value

`fit.log_evidence` is the likelihood at the type-II MAP: it was maximised, and never falls when columns are added. Here
precisions and noise are averaged over their prior instead, so that kernels, widths or priors can be compared. With a
run of `sbl_ppl.tempering.TemperedExchange` on powers 1 = b_0 > ... > b_(K-1) = 0 it is a sum of stepping stones,

    log p(t) = sum over k of log E_(k+1)[exp((b_k - b_(k+1)) L)],    L = log p(t | alpha, sigma^2),

with the mean over the draws of rung k + 1. To first order the error is that of the mean of

    y = sum over k of exp((b_k - b_(k+1)) L_(k+1)) / E_(k+1)[exp((b_k - b_(k+1)) L)],

one number a draw, in which whatever the rungs have in common is accounted for: its standard deviation divided by the
root of its effective sample size is the standard error.

The evidence depends on the priors as they are, not just on their shapes: on the bounds of the precisions, and on the
prior of the noise variance. A wide prior costs the logarithm of its width. So compare dictionaries under one prior of
the noise, in units that fit them all, and look at what another `high` would do.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size

from .checks import flag, instance, noise_pair, whole_number
from .map_fit import MapFit
from .posterior import model_arguments, workers
from .priors import Prior
from .problem import Noise, Problem
from .sampling import _ROUND, SamplingWarning, _Bar, _Chains, _new_settings, _Settings, _start
from .tempering import TemperedExchange, check_noise_prior, ladder

Array = np.ndarray


@dataclass(frozen=True, repr=False)
class Evidence:
    """What `log_evidence` found.

    Attributes
    ----------
    value : float
        log p(t | dictionary, prior), the log density of t in the user's units; with ``center=True`` that of t without
        its mean.
    standard_error : float
        Its Monte Carlo standard error, autocorrelation included.
    contributions : array of shape (K - 1,)
        The stepping stones, from rung k + 1 to rung k. They sum to `value`, but for the units of t.
    powers : array of shape (K,)
        The ladder, from 1 to 0.
    swap_acceptance : array of shape (K - 1,)
        Mean acceptance probability of swaps of rungs k and k + 1.
    ess : float
        Effective number of draws behind `value`.
    num_draws : int
        Draws of all chains together.
    """

    value: float
    standard_error: float
    contributions: Array
    powers: Array
    swap_acceptance: Array
    ess: float
    num_draws: int

    def __repr__(self) -> str:
        low, high = self.swap_acceptance.min(), self.swap_acceptance.max()
        return (
            f"Evidence: log p(t) = {self.value:.6g} ± {self.standard_error:.2g}\n"
            f"  {len(self.powers)} rungs, swaps accepted {low:.0%} to {high:.0%}, "
            f"effective sample size {self.ess:.0f} of {self.num_draws}"
        )


def log_evidence(
    fit: MapFit,
    prior: Prior | None = None,
    noise_prior: tuple[float, float] | None = None,
    num_rungs: int = 16,
    num_warmup: int = 300,
    num_samples: int = 500,
    num_chains: int = 4,
    seed: int = 0,
    powers: Sequence[float] | None = None,
    progress: bool = True,
) -> Evidence:
    """log p(t | dictionary, prior), with precisions and noise variance integrated out by tempered sampling.

    Parameters
    ----------
    fit : MapFit
        Data, dictionary, prior and noise; and the point around which chains start.
    prior : Prior, optional
        Another prior of the precisions than the fit's.
    noise_prior : (g, h), optional
        Another inverse gamma of the noise variance than the fit's, in the user's units. The default of `fit_map` is too
        wide for an evidence and is refused; a known `noise_variance` needs none.
    num_rungs : int
        Rungs of the ladder, adapted during warmup. Take more if swaps are rarely accepted.
    num_warmup, num_samples, num_chains : int
        Steps of adaptation and kept steps of each chain, chains. Each step is `num_rungs` sweeps of `ExchangeGibbs`.
    seed : int
        The same seed gives the same answer.
    powers : sequence of float, optional
        The ladder itself, from 1 to 0, instead of `num_rungs`.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    Evidence
        With a standard error.

    Raises
    ------
    ValueError
        For bad input, and for a `noise_prior` that is improper or nearly so.

    Warns
    -----
    SamplingWarning
        If some swap is accepted with a probability below 0.1, or the draws are too few to trust the standard error.
    """
    instance("fit", fit, MapFit, "a MapFit", "call fit_map first")
    if prior is not None:
        instance("prior", prior, Prior, "a Prior such as Smoothness('BIC') or Jeffreys()")
    flag("progress", progress)
    whole_number("num_rungs", num_rungs, 2)
    whole_number("num_samples", num_samples, 20)
    rungs: Any = num_rungs if powers is None else powers
    if ladder(rungs)[-1] != 0:
        raise ValueError(f"powers={powers!r} must end at 0: the evidence is measured from the prior")
    problem = _with_noise_prior(fit.problem(prior), noise_prior)
    given = {"num_warmup": num_warmup, "num_chains": num_chains, "seed": seed}
    settings = replace(_new_settings(given), kernel="tempered")
    draws = _run(fit, problem, settings, rungs, num_samples, progress)
    result = stepping_stones(*draws, shift=problem.shift)
    for message in _complaints(result):
        warnings.warn(message, SamplingWarning, stacklevel=2)
    return result


def stepping_stones(powers: Array, values: Array, swaps: Array, shift: float = 0.0) -> Evidence:
    """The evidence from log p(t) of shape (chains, draws, K) on every rung, and acceptances (chains, draws, K - 1)."""
    log_weights = (powers[:-1] - powers[1:]) * np.where(np.isnan(values), -np.inf, values)[..., 1:]
    top = log_weights.max((0, 1))
    contributions = top + np.log(np.exp(log_weights - top).mean((0, 1)))
    y = np.exp(log_weights - contributions).sum(-1)
    ess = min(float(effective_sample_size(y)), float(y.size))
    return Evidence(
        value=float(contributions.sum() - shift),
        standard_error=float(y.std() / np.sqrt(ess)),
        contributions=contributions,
        powers=powers,
        swap_acceptance=swaps.mean((0, 1)),
        ess=ess,
        num_draws=y.size,
    )


def _with_noise_prior(problem: Problem, noise_prior: Any) -> Problem:
    """The problem with another prior of the noise variance, checked to be one from which one can draw."""
    noise, unit = problem.noise, problem.scale**2
    if noise_prior is not None:
        if noise.fixed:
            raise ValueError(f"noise_prior={noise_prior!r}, but the fit's noise_variance is known: leave one out")
        noise_pair(noise_prior)
        noise = Noise(None, float(noise_prior[0]), float(noise_prior[1]) / unit)
    if not noise.fixed:
        check_noise_prior((noise.shape, noise.rate * unit))
    return replace(problem, noise=noise)


class _Ladder(_Chains):
    """The tempered kernel, compiled for one chain."""

    fields = ("rung_log_likelihood", "swap_accept_prob")

    def __init__(self, problem: Problem, settings: _Settings, rungs: Any):
        arguments, options = model_arguments(problem)
        self.arguments = jax.tree.map(jnp.asarray, arguments)
        self.kernel, self.options = TemperedExchange(**options, powers=rungs), {}
        self.num_warmup, self.thin = settings.num_warmup, 1
        self._compiled = None


def _run(
    fit: MapFit, problem: Problem, settings: _Settings, rungs: Any, num_samples: int, progress: bool
) -> tuple[Array, Array, Array]:
    """The ladder, and log p(t) and swap acceptance of every draw; in units of the search."""
    chains = settings.num_chains
    kept: list[dict[str, Array]] = []
    with jax.enable_x64(True):
        runner = _Ladder(problem, settings, rungs)
        keys = np.asarray(jax.random.split(jax.random.PRNGKey(settings.seed), (chains, 2)))
        positions = [_start(fit, problem, settings.start, key) for key in keys[:, 0]]
        states = runner.first_states(keys[:, 1], positions)
        with ThreadPoolExecutor(min(chains, workers())) as pool, _Bar(progress, settings, num_samples) as bar:
            runner.compile(states[0])
            half = settings.num_warmup // 2  # the chains have moved their ladders for the last time
            for part, length in enumerate((half, settings.num_warmup - half, num_samples)):
                kept = []
                for done in range(0, length, _ROUND):
                    count = min(_ROUND, length - done)
                    states, new = runner.advance(states, count, 1, pool)
                    kept.append(new)
                    bar.update(count, new)
                if part == 0:
                    states = _one_ladder(states)
        powers = np.asarray(states[0].powers)
    values, swaps = (np.concatenate([part[name] for part in kept], 1) for name in _Ladder.fields)
    return powers, values, swaps


def _one_ladder(states: list[Any]) -> list[Any]:
    """All chains on the geometric mean of their ladders, so that their draws can be averaged rung by rung."""
    powers = np.stack([np.asarray(state.powers) for state in states])
    with np.errstate(divide="ignore"):
        common = jnp.asarray(np.exp(np.log(powers).mean(0)))
    return [state._replace(powers=common) for state in states]


def _complaints(result: Evidence) -> list[str]:
    """What is wrong with a run, and what to try."""
    found = []
    if result.swap_acceptance.min() < 0.1:
        rung = int(np.argmin(result.swap_acceptance))
        found.append(
            f"log_evidence: rungs {rung} and {rung + 1} are swapped with probability "
            f"{result.swap_acceptance[rung]:.2g} only: take a larger num_rungs"
        )
    if result.ess < 100 or result.standard_error > 1:
        found.append(
            f"log_evidence: an effective sample size of {result.ess:.0f}, a standard error of "
            f"{result.standard_error:.2g}: take a larger num_samples or num_warmup"
        )
    return found
