"""Exact sampling on a ladder of tempered posteriors: from one mode to another by way of the prior.

    MCMC(TemperedExchange(prior, noise_prior=(2.0, 0.1)), num_warmup=500, num_samples=2000).run(key, design, t)

samples what `sbl_ppl.gibbs.ExchangeGibbs` samples, the posterior of `alpha` and `noise_variance`, where that kernel
alone would stay in the mode in which it started. K states stand on the rungs of a ladder. The one on rung k follows

    p_k(alpha, sigma^2) ~ p(t | alpha, sigma^2)^b_k p(alpha, sigma^2),    1 = b_0 > b_1 > ... > b_(K-1) >= 0,

and the draws are those of rung 0. Each step has two parts.

**Sweeps.** One sweep of `ExchangeGibbs` on every rung, with the likelihood to the rung's power. At b = 0 there is only
the prior, from which a state is drawn afresh.

**Swaps.** The states of rungs k and k + 1 change places with probability min(1, exp((b_k - b_(k+1)) (L_(k+1) - L_k))),
L being log p(t | alpha, sigma^2); with even k and with odd k in turn, so that a state that has begun to climb goes on
climbing.

**Ladder.** If only the number of rungs is given, they begin at b = (1 - k / (K - 1))^5, close together near the prior
where the posterior changes most, and are moved three times during warmup: rejected swaps, added up along the ladder,
measure a distance between prior and posterior, and the rungs are spaced evenly in it.

**A proper prior.** b = 0 needs a prior that can be drawn from. Bounds make that of the precisions proper. The default
prior of the noise variance is proper by a hair: log(sigma^2) is spread over some 10^4 nats, so that most of its draws
are infinite as floating point numbers go. So a ladder down to zero asks for `noise_variance` or for a `noise_prior`
that says something. A ladder that ends above zero does without, and serves to mix as well.

With b = 0 on the ladder a run tells p(t | dictionary, prior) too: see `sbl_ppl.evidence_sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from .dictionary import as_numbers
from .gibbs import ExchangeGibbs, ExchangeGibbsState, Problem, _Likelihood, _orthonormal_likelihood, _whole
from .priors import BoundPrior, Prior

__all__ = ["TemperedExchange", "TemperedExchangeState"]

Array = jax.Array

_CURVE = 5  # rungs are even in b^(1/5) before they are adapted, and interpolated in it
LEAST_SHAPE = 0.01  # of the noise prior: with less, draws of sigma^2 leave the range of floating point numbers
_ADAPTATIONS = (8, 4, 2)  # the ladder is moved after an eighth, a quarter and half of the warmup


class TemperedExchangeState(NamedTuple):
    """State of `TemperedExchange`: all that is needed to go on, bit for bit.

    Attributes
    ----------
    i : int
        Number of steps done.
    z : dict
        `alpha` and `noise_variance` (if unknown) of rung 0 in unconstrained coordinates.
    potential_energy, accept_prob, exchange_accept_prob, noise_accept_prob, drift : float
        Those of `ExchangeGibbsState`, of rung 0.
    swap_accept_prob : array of shape (K - 1,)
        Probability with which rungs k and k + 1 would be swapped, for all pairs, whether it was their turn or not.
    rung_log_likelihood : array of shape (K,)
        log p(t | alpha, sigma^2) of each rung's state, not to its power.
    powers : array of shape (K,)
        The ladder, from 1 downwards.
    rejected : array of shape (K - 1,)
        Rejection probabilities of swaps, summed since the ladder was last moved.
    v, log_noise, log_step : array
        Those of `ExchangeGibbsState`, with the rungs on a leading axis.
    num_warmup : int
        Number of steps in which step lengths and ladder are adapted.
    problem : Problem
        Design, t and prior, the same for all rungs.
    rng_key : array
        Random number generator key.
    """

    i: Array
    z: dict[str, Array]
    potential_energy: Array
    accept_prob: Array
    exchange_accept_prob: Array
    noise_accept_prob: Array
    drift: Array
    swap_accept_prob: Array
    rung_log_likelihood: Array
    powers: Array
    rejected: Array
    v: Array
    log_noise: Array
    log_step: Array
    num_warmup: Array
    problem: Problem
    rng_key: Array


def ladder(powers: int | Sequence[float]) -> np.ndarray:
    """Powers from 1 downwards: those given, or so many, which end at zero.

    Raises
    ------
    ValueError
        Unless there are two at least, the first is 1, and each is smaller than the one before and none negative.
    """
    if np.ndim(powers) == 0:
        if isinstance(powers, bool) or not isinstance(powers, int | np.integer) or powers < 2:
            raise ValueError(f"powers={powers!r} must be a number of rungs, at least 2, or the powers themselves")
        return np.linspace(1.0, 0.0, int(powers)) ** _CURVE
    given = as_numbers(powers, "powers")
    falling = given.ndim == 1 and len(given) >= 2 and given[0] == 1 and given[-1] >= 0 and np.all(np.diff(given) < 0)
    if not falling:
        raise ValueError(f"powers={powers!r} must fall from 1 to a number >= 0, such as (1, 0.3, 0.1, 0)")
    return given


def check_noise_prior(noise_prior: Any) -> None:
    """Raise ValueError unless (g, h) is a prior of the noise variance from which one can draw."""
    g, h = (1e-4, 1e-4) if noise_prior is None else noise_prior
    if not (g > 0 and h > 0):
        raise ValueError(f"noise_prior=({g:g}, {h:g}) has no integral: give g > 0 and h > 0, or noise_variance")
    if g < LEAST_SHAPE:
        raise ValueError(
            f"noise_prior=({g:g}, {h:g}) spreads log(noise_variance) over {1 / g:.0f} nats, as the default does, and a "
            "ladder that reaches the prior would measure little else: give noise_prior=(2, h) with h near what the "
            "noise variance may be; or noise_variance; or a ladder that ends above zero"
        )


class TemperedExchange(ExchangeGibbs):
    """`ExchangeGibbs` on a ladder of powers of the likelihood, with swaps between them, for `numpyro.infer.MCMC`.

    Samples what `ExchangeGibbs` samples, and is used as that is, with K times the cost of a step. For posteriors whose
    modes are so far apart that no exchange of two columns leads from one to another; and for the evidence.

    Parameters
    ----------
    prior, noise_variance, noise_prior, fixed_alpha, num_exchanges, num_noise_steps, grid_size
        Those of `ExchangeGibbs`.
    powers : int or sequence of float
        How many rungs, the last of which is the prior, and whose powers are adapted during warmup; or the powers
        themselves, falling from 1 to a number >= 0.

    Raises
    ------
    ValueError
        For powers that do not fall from 1; and for a `noise_prior` that is improper or nearly so, as the default is,
        if the ladder reaches zero.
    """

    def __init__(
        self,
        prior: Prior | BoundPrior | None = None,
        noise_variance: Any = None,
        noise_prior: tuple[Any, Any] | None = None,
        fixed_alpha: Any = None,
        num_exchanges: int | None = None,
        num_noise_steps: int = 3,
        grid_size: int = 12,
        powers: int | Sequence[float] = 12,
    ):
        super().__init__(prior, noise_variance, noise_prior, fixed_alpha, num_exchanges, num_noise_steps, grid_size)
        self._powers, self._adapt = ladder(powers), np.ndim(powers) == 0
        self._to_prior = self._powers[-1] == 0
        if self._to_prior and noise_variance is None:
            check_noise_prior(noise_prior)

    def get_diagnostics_str(self, state: Any) -> str:
        return f"{super().get_diagnostics_str(state)}, least swap={jnp.min(state.swap_accept_prob):.2f}"

    def _start(self, *args: Any, **options: Any) -> Any:
        first = super()._start(*args, **options)
        powers = jnp.asarray(self._powers, first.v.dtype)
        pairs, on_all = jnp.zeros(len(powers) - 1, first.v.dtype), (len(powers),)
        return TemperedExchangeState(
            **{name: getattr(first, name) for name in _SHARED},
            swap_accept_prob=pairs,
            rung_log_likelihood=jnp.broadcast_to(first.log_likelihood, on_all),
            powers=powers,
            rejected=pairs,
            v=jnp.broadcast_to(first.v, on_all + first.v.shape),
            log_noise=jnp.broadcast_to(first.log_noise, on_all),
            log_step=jnp.broadcast_to(first.log_step, on_all),
        )

    def _sweep(self, state: Any, orthonormal: bool) -> Any:
        rng_key, key_sweep, key_prior, key_swap = random.split(state.rng_key, 4)
        cold = self._rung(state, state.rng_key, 1.0, state.v[0], state.log_noise[0], state.log_step[0], 0.0)
        rungs = (state.v, state.log_noise, state.log_step, state.rung_log_likelihood)
        swept = len(self._powers) - self._to_prior
        keys = random.split(key_sweep, swept)

        # One after the other: batched factorisations are slow on a processor
        def one(rung: Any) -> Any:
            after = super(TemperedExchange, self)._sweep(self._rung(state, *rung), orthonormal)
            moved = after.v, after.log_noise, after.log_step, after.log_likelihood
            return moved, tuple(getattr(after, name) for name in _STATISTICS)

        moved, stats = lax.map(one, (keys, state.powers[:swept], *(leaf[:swept] for leaf in rungs)))
        if self._to_prior:
            # Not side by side with the sweeps: two factorisations that are batched over chains may block each other
            moved, key_prior = lax.optimization_barrier((moved, key_prior))
            last = self._draw_prior(key_prior, state, orthonormal)
            moved = tuple(jnp.concatenate([leaf, new[None]]) for leaf, new in zip(moved, last, strict=True))
        v, log_noise, log_step, values = moved
        order, probability = self._swaps(key_swap, state, values)
        v, log_noise, values = v[order], log_noise[order], values[order]
        cold = self._finish(cold._replace(v=v[0], log_noise=log_noise[0], log_likelihood=values[0]))
        state = state._replace(
            i=state.i + 1,
            z=cold.z,
            potential_energy=cold.potential_energy,
            **{name: leaf[0] for name, leaf in zip(_STATISTICS, stats, strict=True)},
            swap_accept_prob=probability,
            rung_log_likelihood=values,
            rejected=state.rejected + 1 - probability,
            v=v,
            log_noise=log_noise,
            log_step=log_step,
            rng_key=rng_key,
        )
        return self._move_ladder(state) if self._adapt else state

    def _rung(
        self, state: TemperedExchangeState, key: Any, power: Any, v: Any, log_noise: Any, log_step: Any, value: Any
    ) -> ExchangeGibbsState:
        """One rung as the state of an `ExchangeGibbs` of its own."""
        shared = {name: getattr(state, name) for name in _SHARED}
        shared["rng_key"] = key
        shared["problem"] = state.problem._replace(power=jnp.asarray(power, state.powers.dtype))
        return ExchangeGibbsState(**shared, v=v, log_noise=log_noise, log_step=log_step, log_likelihood=value)

    def _draw_prior(self, key: Array, state: TemperedExchangeState, orthonormal: bool) -> tuple[Array, ...]:
        """A draw of v and log_noise from the prior, the step length as it was, and log p(t)."""
        problem = state.problem
        key_noise, key_alpha = random.split(key)
        log_noise = jnp.log(problem.noise_variance)
        if self._noise_variance is None:
            assert self._noise_prior is not None
            g = jnp.asarray(self._noise_prior[0], log_noise.dtype)
            log_noise = jnp.log(problem.noise_rate) - random.loggamma(key_noise, g)
        share = random.uniform(key_alpha, problem.low.shape, problem.low.dtype)
        alpha = self._precision(problem, self._seen_noise(log_noise)).icdf(share)
        v = jnp.clip(jnp.log(alpha) - problem.offset, problem.low, problem.high)
        likelihood = (_orthonormal_likelihood if orthonormal else _Likelihood)(problem, _whole(problem, v))
        return v, log_noise, state.log_step[-1], likelihood(jnp.exp(log_noise))

    def _swap_log_ratio(self, powers: Array, values: Array) -> Array:
        """Log of the ratio that accepts the swap of rungs k and k + 1, given log p(t) of all."""
        return (powers[:-1] - powers[1:]) * (values[1:] - values[:-1])

    def _swaps(self, key: Array, state: TemperedExchangeState, values: Array) -> tuple[Array, Array]:
        """Which rung's state comes to each rung, and the acceptance probability of every pair."""
        probability = jnp.exp(jnp.minimum(self._swap_log_ratio(state.powers, values), 0.0))
        probability = jnp.where(jnp.isnan(probability), 0.0, probability)
        pair = jnp.arange(len(values) - 1)
        turn = pair % 2 == state.i % 2
        taken = (turn & (random.uniform(key, pair.shape, values.dtype) < probability)).astype(pair.dtype)
        return jnp.arange(len(values)).at[:-1].add(taken).at[1:].add(-taken), probability

    def _move_ladder(self, state: TemperedExchangeState) -> TemperedExchangeState:
        """With rungs even in the sum of rejections, at three times of the warmup."""
        due = jnp.any(state.i == jnp.stack([state.num_warmup // part for part in _ADAPTATIONS])) & (state.i > 1)
        lengths = state.rejected + 1e-3 * jnp.mean(state.rejected) + 1e-6
        below = jnp.concatenate([jnp.zeros(1, lengths.dtype), jnp.cumsum(lengths)])
        even = jnp.linspace(0.0, below[-1], len(below))
        powers = jnp.interp(even, below, state.powers ** (1 / _CURVE)) ** _CURVE
        powers = powers.at[0].set(1.0).at[-1].set(state.powers[-1])
        return state._replace(powers=jnp.where(due, powers, state.powers), rejected=jnp.where(due, 0.0, state.rejected))


_STATISTICS = ("accept_prob", "exchange_accept_prob", "noise_accept_prob", "drift")
_SHARED = ("i", "z", "potential_energy", *_STATISTICS, "num_warmup", "problem", "rng_key")
