"""Exact sampling of precisions and noise variance: one-dimensional conditionals, exchanges, and the noise.

    MCMC(ExchangeGibbs(sbl.Smoothness("BIC")), num_warmup=500, num_samples=2000).run(key, design, t)

samples the posterior of `alpha` and `noise_variance` under `sbl_ppl.model.model`, with the weights integrated out, as
NUTS on that model does, and where neighbouring columns resemble each other many times faster: a basis function that
would serve as well one place to the right is a separate mode, which gradients do not find. One sweep has three parts.

**Conditionals.** Given all else, the log density of v = log(alpha_m) is known from two numbers (SE07 eq. 29),

    l(v) = 1/2 [-log(1 + s/alpha) + (q^2/s) s / (alpha + s)] + log p(alpha | sigma^2) + v,

with straight tails, and bends in at most three places: at the peak alpha = s^2/q^2, at alpha = s, and where the prior
bends (kappa = 1/2, or alpha = 1/b). Through knots around these, which do not depend on alpha_m itself, goes a polygon.
A proposal is drawn from the density whose logarithm the polygon is, exact in the tails, and accepted by
Metropolis-Hastings with a probability near one: exact for any knots.

**Exchanges.** The values of two columns (in units of the columns' norms) change places. A value is chosen with a
probability that grows with its kappa, so that mostly a column in use is moved; its new column j given the old i has
probability w_ij / W_i, with w_ij a power of the correlation of the two columns and W_i the sum over j. An exchange only
permutes the values, so that the same value is as likely to be chosen for the way back, and of the proposal ratio
W_i / W_j is left.

**Noise.** Random walk steps in log(sigma^2), whose length is adapted during warmup. The prior of the precisions depends
on sigma^2, its normaliser included.

**Power.** All of this holds for the likelihood to a power b as well: `problem.power`, which is 1 but for
`sbl_ppl.tempering`. The bends of a conditional stay where they are.

**Algebra.** Columns are treated in blocks of k that are drawn anew for every sweep, a random column and others that
resemble it, whatever the state. With the block J taken out of C, a Cholesky factor of size min(N, M) gives

    G = Phi_J' C_-J^-1 Phi_J,    h = Phi_J' C_-J^-1 t,

and all moves of these k columns, conditional draws and exchanges, need nothing but this small problem. One move takes
one or two columns p out of it in turn, again by a Cholesky factor: with R the rest of the block and D = A^-1/2,

    S = G_pp - G_pR D (I + D G_RR D)^-1 D G_Rp,    q = h_p - G_pR D (I + D G_RR D)^-1 D h_R,
    log p(t) = const - 1/2 log|I + D_p S D_p| + 1/2 q' D_p (I + D_p S D_p)^-1 D_p q.

It would be cheaper to update one inverse from move to move. But where columns are nearly dependent and their weights
large, as those of splines are, each removal of a column loses as many digits as the problem is badly conditioned, and
what is lost is never found again: after a few moves nothing is left. Here every move starts from G. `drift` compares
the sum of a sweep's changes of log p(t) with the change computed afresh.

A sweep costs O(M/k min(N, M)^3 + M k^3), and O(N) with an `Orthonormal` design, where the precisions are independent
given sigma^2, all drawn at once, and nothing needs exchange.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.linalg import cho_solve, solve_triangular
from numpyro import distributions as dist
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from .checks import noise_pair, positive, whole_number
from .distributions import (
    GammaPrecision,
    Orthonormal,
    PowerPrecision,
    SmoothnessPrecision,
    _factor,
    check_digits,
    log_interval,
)
from .model import free_columns, model, noise_prior_distribution
from .priors import BoundPrior, Prior, Smoothness

__all__ = ["ExchangeGibbs", "ExchangeGibbsState"]

Array = jax.Array

_BLOCK = 32  # columns treated together
_TARGET = 0.44  # acceptance of a random walk in one dimension
_IDLE = 0.001  # how likely a column out of use is moved, relative to one in use
_POWER = 8  # of the correlation, in the choice of a partner
_FAR = 1e-4  # the least weight of a partner, so that any two columns may be exchanged


class Problem(NamedTuple):
    """What does not change from sweep to sweep, for columns of unit norm in the order free, then fixed."""

    columns: Array  # (N, M), or (0, 0) if orthonormal
    t: Array  # (N,)
    gram: Array  # (M, M)
    projection: Array  # (M,), columns' t
    log_norm2: Array  # (F,)
    fixed: Array  # (M - F,), v of the fixed columns
    low: Array  # (F,), bounds of v
    high: Array  # (F,)
    bend: Array  # (F,), the v at which kappa is one half, plus log sigma^2; or the bend of the gamma prior
    rate: Array  # (F,), b of the gamma prior in units of v
    parameters: tuple[Array, Array, Array, Array]  # b, rho, low, high of the prior's own coordinate
    offset: Array  # the prior's own coordinate of log(alpha), minus v
    noise_rate: Array  # h of the noise prior
    noise_variance: Array  # if known
    power: Array  # of the likelihood: 1, or less in a tempered run


class ExchangeGibbsState(NamedTuple):
    """State of `ExchangeGibbs`: all that is needed to go on, bit for bit.

    Attributes
    ----------
    i : int
        Number of sweeps done.
    z : dict
        `alpha` and `noise_variance` (if unknown) in the unconstrained coordinates that `NUTS(model)` uses too.
    potential_energy : float
        Minus the log joint density of t, log(alpha) and log(noise_variance), with all normalisers; that of t to the
        power `problem.power`.
    accept_prob, exchange_accept_prob, noise_accept_prob : float
        Mean acceptance probability of the last sweep's conditional draws, exchanges and noise steps.
    drift : float
        Error of log p(t) after the last sweep's draws and exchanges if their changes are summed, relative to
        1 + |log p(t)|.
    log_step : float
        Log of the step length in log(noise_variance).
    num_warmup : int
        Number of sweeps in which it is adapted.
    v : array
        log(alpha) minus log of the column's squared norm.
    log_noise : float
        log(noise_variance).
    log_likelihood : float
        log p(t) given both.
    problem : Problem
        Design, t and prior in the units and the order that the sweeps use.
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
    log_step: Array
    num_warmup: Array
    v: Array
    log_noise: Array
    log_likelihood: Array
    problem: Problem
    rng_key: Array


class Conditional(NamedTuple):
    """The log density of v given all else, up to a constant, for scalars or with all arrays of one shape.

    l(v) = temper/2 [-log(1 + e^(log_s - v)) + quality / (1 + e^(v - log_s))] + power v - rate e^v - c kappa(v).
    """

    log_s: Array
    quality: Array  # q^2 / s
    low: Array
    high: Array
    bend: Array
    rate: Array
    power: float
    c: float
    gamma: bool  # whether rate is not zero
    temper: Any = 1.0  # the power of the likelihood

    def likelihood(self, v: Array) -> Array:
        """Log likelihood, not yet to its power."""
        ratio = jnp.exp(jnp.minimum(self.log_s - v, 80.0))
        return 0.5 * (self.quality * ratio / (1 + ratio) - jnp.log1p(ratio))

    def prior(self, v: Array) -> Array:
        value = self.power * v
        if self.c:
            value -= self.c * jax.nn.sigmoid(self.bend - v)
        return value - self.rate * jnp.exp(v) if self.gamma else value

    def __call__(self, v: Array) -> Array:
        return self.temper * self.likelihood(v) + self.prior(v)

    def at(self, index: Any) -> Conditional:
        """That of the columns `index`."""
        log_s, quality, low, high, bend, rate = (x[index] for x in self[:6])
        return Conditional(log_s, quality, low, high, bend, rate, *self[6:])

    def lifted(self) -> Conditional:
        """With one more axis on the right, for the knots."""
        return self.at((..., None))

    def knots(self, size: int) -> Array:
        """Points between low and high in ascending order, on a last axis, `size` of them around each bend."""
        first = self.log_s - jnp.log(jnp.maximum(self.quality, 1.0))
        low, high, first, second = (jnp.expand_dims(x, -1) for x in (self.low, self.high, first, self.log_s))
        # Each family of knots ends half way to the next bend, so that they need no sorting. Spaced more and more
        # widely: a bend is e^v against 1, and eight away from it a straight line within e^-8
        half = 0.25 * np.sinh(np.linspace(0.5, np.arcsinh(8 / 0.25), size // 2))
        offsets = jnp.asarray(np.concatenate([-half[::-1], half]), self.low.dtype)
        bends = [first, second]
        if self.c or self.gamma:
            third = jnp.expand_dims(self.bend, -1)
            bends = [jnp.minimum(first, third), jnp.clip(third, first, second), jnp.maximum(second, third)]
        ends = [low, *((left + right) / 2 for left, right in itertools.pairwise(bends)), high]
        families = [jnp.clip(x + offsets, a, b) for x, a, b in zip(bends, ends, ends[1:], strict=False)]
        return jnp.clip(jnp.concatenate([low, *families, high], -1), low, high)


def draw_conditional(target: Conditional, v: Array, uniform: Array, size: int) -> tuple[Array, Array]:
    """One Metropolis-Hastings step from v, and its acceptance probability; `uniform` has a last axis of length two.

    The proposal is drawn by inversion from the density exp(polygon through the knots).
    """
    x, lifted = target.knots(size), target.lifted()
    f = lifted(x)
    top = jnp.max(f, -1, keepdims=True)
    # Where the target falls like -e^v a chord lies far below it, and a chain that started there would never leave
    f = jnp.maximum(f, top - 30.0)
    density = jnp.exp(f - top)
    width, rise = x[..., 1:] - x[..., :-1], f[..., 1:] - f[..., :-1]
    flat = jnp.abs(rise) < jnp.finfo(f.dtype).eps ** (1 / 3)
    mean = jnp.where(
        flat,
        (density[..., 1:] + density[..., :-1]) / 2,
        (density[..., 1:] - density[..., :-1]) / jnp.where(flat, 1, rise),
    )
    mass = width * mean
    pieces = mass.shape[-1]
    below = mass @ jnp.asarray(np.triu(np.ones((pieces, pieces)), 1), mass.dtype)
    goal = uniform[..., :1] * (below[..., -1:] + mass[..., -1:])
    piece = jnp.sum(below[..., 1:] <= goal, -1, keepdims=True)
    here = jnp.sum(x[..., 1:-1] <= v[..., None], -1, keepdims=True)

    def pick(values: Array, index: Array) -> Array:
        return jnp.take_along_axis(values, index, -1)[..., 0]

    tiny = jnp.finfo(f.dtype).tiny
    share = (goal[..., 0] - pick(below, piece)) / jnp.maximum(pick(mass, piece), tiny)
    slope = pick(rise, piece)
    steep = jnp.maximum(jnp.abs(slope), jnp.finfo(f.dtype).eps)
    # Measured from the higher end, where nothing overflows
    from_top = jnp.where(slope > 0, 1 - share, share)
    from_top = -jnp.log1p(jnp.clip(from_top, 0, 1) * jnp.expm1(-steep)) / steep
    along = jnp.clip(jnp.where(slope > 0, 1 - from_top, from_top), 0, 1)
    proposal = jnp.clip(pick(x, piece) + along * pick(width, piece), target.low, target.high)
    now = jnp.clip((v - pick(x, here)) / jnp.maximum(pick(width, here), tiny), 0, 1)
    log_ratio = target(proposal) - target(v)
    log_ratio += pick(f, here) + now * pick(rise, here) - pick(f, piece) - along * slope
    probability = jnp.exp(jnp.minimum(log_ratio, 0))
    return jnp.where(uniform[..., 1] < probability, proposal, v), probability


class Block(NamedTuple):
    """The small problem of k columns, with all others in C; see the module."""

    G: Array
    h: Array

    def without(self, v: Array, out: Array) -> tuple[Array, Array]:
        """S and q of the columns `out`, given v of the rest of the block: O(k^3)."""
        d = jnp.exp(-v / 2).at[out].set(0.0)
        right = jnp.concatenate([self.G[:, out], self.h[:, None]], 1)
        solved = solve_triangular(_factor(self.G * d[:, None] * d), d[:, None] * right, lower=True)
        rest = right[out] - solved[:, :-1].T @ solved
        return rest[:, :-1], rest[:, -1]


def pair_likelihood(S: Array, q: Array, v: Array) -> Array:
    """log p(t) as a function of the v of two columns, up to a constant, given their S and q."""
    d = jnp.exp(-v / 2)
    a, b, c = 1 + S[0, 0] * d[0] ** 2, 1 + S[1, 1] * d[1] ** 2, S[0, 1] * d[0] * d[1]
    # |I + D S D| = 1 + trace + |D S D|, and the last term may only be rounded below zero
    determinant = a + b - 1 + jnp.maximum((a - 1) * (b - 1) - c**2, 0)
    x, y = q * d
    return 0.5 * ((b * x**2 + a * y**2 - 2 * c * x * y) / determinant - jnp.log(determinant))


def _positive(x: Array) -> Array:
    """At least the smallest normal number: what is a divisor, and may have been rounded to zero."""
    return jnp.maximum(x, jnp.finfo(x.dtype).tiny)


class _Likelihood:
    """log p(t | alpha, sigma^2) as a function of sigma^2, by a Cholesky factorisation of size min(N, M) a value."""

    def __init__(self, problem: Problem, v: Array):
        self.problem, self.d = problem, jnp.exp(-v / 2)
        n, m = problem.columns.shape
        self.wide = m >= n
        X = problem.columns * self.d
        self.gram = X @ X.T if self.wide else problem.gram * self.d[:, None] * self.d

    def __call__(self, noise_variance: Array) -> Array:
        """log p(t)."""
        Phi, t, d, s2 = self.problem.columns, self.problem.t, self.d, noise_variance
        L = _factor(self.gram / s2)
        if self.wide:
            e = cho_solve((L, True), t / jnp.sqrt(s2))
            omega = d * (e @ Phi) / jnp.sqrt(s2)
        else:
            omega = cho_solve((L, True), d * self.problem.projection / s2)
            e = (t - Phi @ (d * omega)) / jnp.sqrt(s2)
        quadratic = len(t) * jnp.log(2 * jnp.pi * s2) + e @ e + omega @ omega
        return -0.5 * quadratic - jnp.sum(jnp.log(jnp.diagonal(L)))


def small_problem(problem: Problem, index: Array, v: Array, noise_variance: Array) -> Block:
    """G and h of a block of columns, from v of all columns: O(min(N, M)^3), and O(N^2 M) to form C if M >= N."""
    sd = jnp.sqrt(noise_variance)
    d = jnp.exp(-v / 2).at[index].set(0.0)  # takes the block out of C
    n, m = problem.columns.shape
    if m >= n:
        X = problem.columns * (d / sd)
        right = jnp.concatenate([problem.columns[:, index], problem.t[:, None]], 1) / sd
        solved = solve_triangular(_factor(X @ X.T), right, lower=True)
        product = solved[:, :-1].T @ solved
    else:
        right = jnp.concatenate([problem.gram[:, index], problem.projection[:, None]], 1)
        gram = problem.gram * (d[:, None] * d) / noise_variance
        solved = solve_triangular(_factor(gram), d[:, None] * right / sd, lower=True)
        product = (right[index] - solved[:, :-1].T @ solved) / noise_variance
    return Block(product[:, :-1], product[:, -1])


class ExchangeGibbs(MCMCKernel):
    """Gibbs sampling of precisions and noise variance with exchanges between columns, for `numpyro.infer.MCMC`.

    Runs as ``MCMC(ExchangeGibbs(prior), ...).run(key, design, t)`` with `design` and `t` as in `sbl_ppl.model.model`,
    whose posterior it samples. Run it in float64, inside ``jax.enable_x64(True)``: with splines float32 gives chains
    that look healthy and are wrong, and warns. The arguments below mean what they mean there and are in the user's
    units.

    Parameters
    ----------
    prior : Prior or BoundPrior, optional
        Prior of the precisions; default ``Smoothness("BIC")``.
    noise_variance : float, optional
        Known noise variance; default sampled.
    noise_prior : (g, h), optional
        Inverse gamma of the noise variance; default (1e-4, 1e-4 times the mean square of t).
    fixed_alpha : array_like of shape (M,), optional
        Known precisions, NaN where a precision is to be sampled.
    num_exchanges : int, optional
        Exchanges a sweep, rounded up to equal numbers in all blocks; default the number of sampled precisions. None are
        made with an `Orthonormal` design.
    num_noise_steps : int
        Random walk steps in log(noise_variance) a sweep.
    grid_size : int
        Knots around each bend of a conditional, even: more make rejections rarer and a sweep slower.
    """

    sample_field = "z"
    # Told from None by `MCMC`, which would otherwise start anew before it goes on from a given state
    _sample_fn = True

    def __init__(
        self,
        prior: Prior | BoundPrior | None = None,
        noise_variance: Any = None,
        noise_prior: tuple[Any, Any] | None = None,
        fixed_alpha: Any = None,
        num_exchanges: int | None = None,
        num_noise_steps: int = 3,
        grid_size: int = 12,
    ):
        self._prior = Smoothness("BIC") if prior is None else prior
        if not isinstance(self._prior, Prior | BoundPrior):
            raise TypeError(f"prior={prior!r} must be a Prior such as Smoothness('BIC'), or a bound one")
        if noise_variance is not None:
            positive("noise_variance", noise_variance, ", or None to sample it")
        if noise_prior is not None:
            noise_pair(noise_prior)
        if num_exchanges is not None:
            whole_number("num_exchanges", num_exchanges, 0, ", or None for one a column")
        whole_number("num_noise_steps", num_noise_steps, 1)
        if whole_number("grid_size", grid_size, 2) % 2:
            raise ValueError(f"grid_size={grid_size!r} must be an even number, at least 2")
        if fixed_alpha is not None:
            free_columns(fixed_alpha, np.size(fixed_alpha))
        self._noise_variance, self._noise_prior, self._fixed_alpha = noise_variance, noise_prior, fixed_alpha
        self._num_exchanges, self._num_noise_steps, self._grid_size = num_exchanges, num_noise_steps, grid_size

    @property
    def model(self) -> Any:
        """The NumPyro model whose posterior is sampled, a function of design and t."""
        return functools.partial(
            model,
            prior=self._prior,
            noise_variance=self._noise_variance,
            noise_prior=self._noise_prior,
            fixed_alpha=self._fixed_alpha,
        )

    @property
    def default_fields(self) -> tuple[str, ...]:
        return (self.sample_field,)

    def get_diagnostics_str(self, state: ExchangeGibbsState) -> str:
        return (
            f"acc. prob={state.accept_prob:.2f}, exchange={state.exchange_accept_prob:.2f}, "
            f"noise={state.noise_accept_prob:.2f}"
        )

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Any:
        def constrain(z: dict[str, Array]) -> dict[str, Array]:
            bound, _ = self._bound(*_data(model_args, model_kwargs))
            values = {"alpha": dist.biject_to(log_interval(bound.low, bound.high))(z["alpha"])}
            if "noise_variance" in z:
                values["noise_variance"] = jnp.exp(z["noise_variance"])
            return values

        return constrain

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Any, model_args: Any, model_kwargs: Any
    ) -> ExchangeGibbsState:
        design, t = _data(model_args, model_kwargs)
        _check_data(design, t)
        if not isinstance(design, Orthonormal):
            n, m = jnp.shape(design)
            check_digits(design, wide=m >= n)
        if is_prng_key(rng_key):
            return self._start(rng_key, num_warmup, init_params, design, t)
        start = functools.partial(self._start, num_warmup=num_warmup, design=design, t=t)
        return jax.vmap(lambda key, params: start(key, init_params=params))(rng_key, init_params)

    def sample(self, state: ExchangeGibbsState, model_args: Any, model_kwargs: Any) -> ExchangeGibbsState:
        design, _ = _data(model_args, model_kwargs)
        sweep = functools.partial(self._sweep, orthonormal=isinstance(design, Orthonormal))
        return sweep(state) if is_prng_key(state.rng_key) else jax.vmap(sweep)(state)

    def _bound(self, design: Any, t: Any) -> tuple[BoundPrior, Array]:
        """The prior of the free columns in the user's units, and the columns' squared norms."""
        if isinstance(design, Orthonormal):
            n = m = design.num_obs
            norm2 = jnp.ones(m, jnp.result_type(float))
        else:
            n, m = jnp.shape(design)
            norm2 = jnp.sum(jnp.square(jnp.asarray(design)), 0)
        bound = self._prior
        if isinstance(bound, Prior):
            whole = 1.0 if isinstance(design, Orthonormal) else norm2
            bound = bound.natural(n, whole, jnp.mean(jnp.square(jnp.asarray(t))))
        return bound.at(free_columns(self._fixed_alpha, m)), norm2

    def _homogeneous(self) -> bool:
        """Whether in units of their norms all columns have one prior, and so one normaliser."""
        prior = self._prior
        if isinstance(prior, BoundPrior) or prior.low is not None or prior.high is not None:
            return False
        return getattr(prior, "normalize", True) and not prior._family(2)[1]

    def _family(self, num_obs: int) -> tuple[float, float, bool]:
        """Exponent of the density per d log(alpha), c, and whether there is a b."""
        if isinstance(self._prior, Prior):
            e, b, c = self._prior._family(num_obs)
            return e + 1.0, c, b > 0
        b = self._prior.b
        return self._prior.exponent + 1.0, self._prior.c, bool(np.ndim(b)) or b > 0

    def _prepare(self, design: Any, t: Any) -> Problem:
        orthonormal, dtype = isinstance(design, Orthonormal), jnp.result_type(float)
        t = jnp.asarray(t, dtype)
        bound, norm2 = self._bound(design, t)
        norm2 = jnp.where(norm2 > 0, norm2, 1.0)
        free = free_columns(self._fixed_alpha, len(norm2))
        order = np.concatenate([free, np.setdiff1d(np.arange(len(norm2)), free)])
        log_norm2, offset = jnp.log(norm2), jnp.zeros(())
        scale2 = jnp.mean(jnp.square(t))
        if self._homogeneous():
            assert isinstance(self._prior, Prior)
            bound = self._prior.natural(len(t), 1.0, scale2)
        elif not orthonormal:
            offset = log_norm2[free]
        power, c, gamma = self._family(len(t))
        b, rho, low, high = (jnp.asarray(x, dtype) for x in (bound.b, bound.rho, bound.low, bound.high))
        bend = jnp.log(rho) if c else jnp.log(jnp.maximum(power, 1.0)) - jnp.log(b) if gamma else jnp.zeros(())
        vector = functools.partial(jnp.broadcast_to, shape=(len(free),))
        if orthonormal:
            columns = gram = jnp.zeros((0, 0), dtype)
            projection = t[order]
        else:
            columns = (jnp.asarray(design, dtype) / jnp.sqrt(norm2))[:, order]
            gram, projection = columns.T @ columns, t @ columns
        fixed = jnp.asarray(np.zeros(len(norm2)) if self._fixed_alpha is None else self._fixed_alpha, dtype)
        return Problem(
            columns=columns,
            t=t,
            gram=gram,
            projection=projection,
            log_norm2=log_norm2[free],
            fixed=(jnp.log(fixed) - log_norm2)[order[len(free) :]],
            low=vector(jnp.log(low) - offset),
            high=vector(jnp.log(high) - offset),
            bend=vector(bend - offset),
            rate=vector(b * jnp.exp(offset)),
            parameters=(b, rho, low, high),
            offset=offset,
            noise_rate=jnp.asarray(1e-4 * scale2 if self._noise_prior is None else self._noise_prior[1], dtype),
            noise_variance=jnp.asarray(1.0 if self._noise_variance is None else self._noise_variance, dtype),
            power=jnp.ones((), dtype),
        )

    def _start(self, rng_key: Array, num_warmup: int, init_params: Any, design: Any, t: Any) -> ExchangeGibbsState:
        problem = self._prepare(design, t)
        key_alpha, key_noise, rng_key = random.split(rng_key, 3)
        shape, dtype = problem.low.shape, problem.low.dtype
        if init_params is None:
            share = jax.nn.sigmoid(random.uniform(key_alpha, shape, dtype, -2, 2))
            log_noise = jnp.log(jnp.mean(problem.t**2)) + random.uniform(key_noise, (), dtype, -4, 0)
        else:
            share = jax.nn.sigmoid(jnp.asarray(init_params["alpha"], dtype))
            if share.shape != shape:
                raise ValueError(f"init_params['alpha'] has shape {share.shape}: {shape} is needed")
            log_noise = jnp.log(problem.noise_variance)
            if self._noise_variance is None:
                log_noise = jnp.asarray(init_params["noise_variance"], dtype)
        if self._noise_variance is not None:
            log_noise = jnp.log(problem.noise_variance)
        v = problem.low + (problem.high - problem.low) * share
        zero, count = jnp.zeros((), dtype), jnp.result_type(int)
        orthonormal = isinstance(design, Orthonormal)
        likelihood = (_orthonormal_likelihood if orthonormal else _Likelihood)(problem, _whole(problem, v))
        state = ExchangeGibbsState(
            i=jnp.zeros((), count),
            z={},
            potential_energy=zero,
            accept_prob=zero,
            exchange_accept_prob=zero,
            noise_accept_prob=zero,
            drift=zero,
            log_step=jnp.asarray(np.log(2.4 * np.sqrt(2 / len(problem.t))), dtype),
            num_warmup=jnp.asarray(num_warmup, count),
            v=v,
            log_noise=log_noise,
            log_likelihood=likelihood(jnp.exp(log_noise)),
            problem=problem,
            rng_key=rng_key,
        )
        return self._finish(state)

    def _finish(self, state: ExchangeGibbsState) -> ExchangeGibbsState:
        """With the z and the potential energy that belong to v, log_noise and log_likelihood."""
        problem, v, log_noise = state.problem, state.v, state.log_noise
        z = {"alpha": _unconstrained(v, problem.low, problem.high)}
        if self._noise_variance is None:
            z["noise_variance"] = log_noise
        energy = -problem.power * state.log_likelihood - self._log_prior(problem, v, log_noise)
        return state._replace(z=z, potential_energy=energy)

    def _sweep(self, state: ExchangeGibbsState, orthonormal: bool) -> ExchangeGibbsState:
        rng_key, key_alpha, key_noise = random.split(state.rng_key, 3)
        problem, v, log_noise = state.problem, state.v, state.log_noise
        exchange_prob, drift = jnp.zeros_like(log_noise), jnp.zeros_like(log_noise)
        if orthonormal:
            log_s, z2 = -log_noise, problem.projection[: len(v)] ** 2
            target = self._conditional(problem, jnp.broadcast_to(log_s, v.shape), z2 * jnp.exp(log_s), log_noise)
            uniform = random.uniform(key_alpha, (*v.shape, 2), v.dtype)
            v, accept_prob = draw_conditional(target, v, uniform, self._grid_size)
        else:
            v, accept_prob, exchange_prob, gain = self._update_alpha(key_alpha, problem, v, log_noise)
        likelihood = (_orthonormal_likelihood if orthonormal else _Likelihood)(problem, _whole(problem, v))
        now = likelihood(jnp.exp(log_noise))
        if not orthonormal:
            drift = jnp.abs(state.log_likelihood + gain - now) / (1 + jnp.abs(now))
        log_step, noise_prob = state.log_step, jnp.zeros_like(log_noise)
        if self._noise_variance is None:
            log_noise, now, noise_prob = self._update_noise(key_noise, likelihood, problem, v, log_noise, now, log_step)
            rate = self._num_noise_steps / (state.i + 1.0) ** 0.6
            log_step += jnp.where(state.i < state.num_warmup, rate * (noise_prob - _TARGET), 0.0).astype(v.dtype)
        state = state._replace(
            i=state.i + 1,
            accept_prob=jnp.mean(accept_prob),
            exchange_accept_prob=exchange_prob,
            noise_accept_prob=noise_prob,
            drift=drift,
            log_step=log_step,
            v=v,
            log_noise=log_noise,
            log_likelihood=now,
            rng_key=rng_key,
        )
        return self._finish(state)

    def _seen_noise(self, log_noise: Array) -> Array:
        """The log(noise_variance) on which the prior of the precisions depends."""
        return log_noise

    def _precision(self, problem: Problem, log_noise: Array) -> dist.Distribution:
        """The prior of the precisions in its own coordinate."""
        power, c, gamma = self._family(len(problem.t))
        b, rho, low, high = problem.parameters
        if c:
            return SmoothnessPrecision(c, jnp.exp(log_noise), rho, low, high, "alpha" if power else "log")
        return GammaPrecision(power, b, low, high) if gamma else PowerPrecision(power - 1.0, low, high)

    def _log_normaliser(self, precision: dist.Distribution) -> tuple[Array, Array]:
        """The mode of the prior, and the log of its integral relative to the density there."""
        return precision._log_normaliser()

    def _log_noise_prior(self, problem: Problem, log_noise: Array) -> Array:
        """Log density of log(noise_variance)."""
        g, h = (1e-4, None) if self._noise_prior is None else self._noise_prior
        h = problem.noise_rate if h is None or h > 0 else 0.0
        return noise_prior_distribution(g, h).log_prob(jnp.exp(log_noise)) + log_noise

    def _log_prior(self, problem: Problem, v: Array, log_noise: Array) -> Array:
        """Log density of all log(alpha) and log(noise_variance)."""
        precision = self._precision(problem, self._seen_noise(log_noise))
        mode, log_total = self._log_normaliser(precision)
        value = jnp.sum(precision._log_ratio(v + problem.offset - mode, mode) - log_total)
        return value + self._log_noise_prior(problem, log_noise) if self._noise_variance is None else value

    def _conditional(self, problem: Problem, log_s: Array, quality: Array, log_noise: Array) -> Conditional:
        """The conditionals of all free columns."""
        power, c, gamma = self._family(len(problem.t))
        bend = problem.bend - self._seen_noise(log_noise) if c else problem.bend
        return Conditional(
            log_s, quality, problem.low, problem.high, bend, problem.rate, power, c, gamma, problem.power
        )

    def _update_alpha(self, key: Array, problem: Problem, v: Array, log_noise: Array) -> tuple[Array, ...]:
        """v after draws and exchanges in every block, their acceptance probabilities, and the change of log p(t)."""
        key, key_partition = random.split(key)
        free = len(v)
        blocks = -(-free // _BLOCK)
        weight = _pair_weights(problem.gram[:free, :free])
        indices = partition(key_partition, weight, blocks)
        prior = self._conditional(problem, v, v, log_noise)
        exchanges = 0 if free < 2 else free if self._num_exchanges is None else self._num_exchanges
        exchanges = -(-exchanges // blocks)

        def block(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            v, total = carry
            key_draw, key_exchange = random.split(random.fold_in(key, i))
            index = indices[i]
            small = small_problem(problem, index, _whole(problem, v), jnp.exp(log_noise))
            here, v_block = prior.at(index), v[index]
            v_block, accept, gain = self._draw(key_draw, small, here, v_block)
            more = jnp.stack([accept, jnp.zeros_like(accept), gain])
            if exchanges:
                pair = weight[index][:, index]
                v_block, accept, gain = self._exchange(key_exchange, small, here, pair, v_block, log_noise, exchanges)
                more += jnp.stack([jnp.zeros_like(accept), accept, gain])
            return v.at[index].set(v_block), total + more

        v, total = lax.fori_loop(0, blocks, block, (v, jnp.zeros(3, v.dtype)))
        return v, total[0] / blocks, total[1] / blocks, total[2]

    def _draw(self, key: Array, small: Block, prior: Conditional, v: Array) -> tuple[Array, Array, Array]:
        """Every v of a block from its conditional; the mean acceptance probability and the change of log p(t)."""
        k, size = len(v), self._grid_size
        uniform = random.uniform(key, (k, 2), v.dtype)

        def step(m: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            v, accept, gain = carry
            S, q = small.without(v, m[None])
            s = _positive(S[0, 0])
            target = prior.at(m)._replace(log_s=jnp.log(s), quality=q[0] ** 2 / s)
            new, probability = draw_conditional(target, v[m], uniform[m], size)
            gain += target.likelihood(new) - target.likelihood(v[m])
            return v.at[m].set(new), accept + probability, gain

        zero = jnp.zeros((), v.dtype)
        v, accept, gain = lax.fori_loop(0, k, step, (v, zero, zero))
        return v, accept / k, gain

    def _exchange_correction(self, log_total: Array, i: Array, j: Array) -> Array:
        """Log of the proposal ratio of moving a value from i to j, given log W of the block's columns."""
        return log_total[i] - log_total[j]

    def _exchange(
        self, key: Array, small: Block, prior: Conditional, weight: Array, v: Array, log_noise: Array, num: int
    ) -> tuple[Array, Array, Array]:
        """Exchange the values of pairs of columns of a block; see the module. Returns what `_draw` does."""
        k = len(v)
        key_label, key = random.split(key)
        partner = jnp.cumsum(weight, 1)
        log_total = jnp.log(partner[:, -1])
        # Values are named by the column they sit in now. What they are chosen by stays with them when they move, so
        # that all choices can be made at once.
        use = jnp.cumsum(jax.nn.sigmoid(-log_noise - v) ** 3 + _IDLE)
        goal = random.uniform(key_label, (num,), v.dtype) * use[-1]
        labels = jnp.minimum(jnp.sum(use <= goal[:, None], 1), k - 1)
        uniform = random.uniform(key, (num, 2), v.dtype)

        def step(n: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            v, place, accept, gain = carry
            i = place[labels[n]]
            j = jnp.minimum(jnp.sum(partner[i] <= uniform[n, 0] * partner[i, -1]), k - 1)
            pair = jnp.stack([i, j])
            S, q = small.without(v, pair)
            columns, old = prior.at(pair), v[pair]
            new = old[::-1]
            change = pair_likelihood(S, q, new) - pair_likelihood(S, q, old)
            log_ratio = columns.temper * change + jnp.sum(columns.prior(new) - columns.prior(old))
            log_ratio += self._exchange_correction(log_total, i, j)
            inside = jnp.all((new >= columns.low) & (new <= columns.high))
            probability = jnp.where(inside, jnp.exp(jnp.minimum(log_ratio, 0.0)), 0.0)
            taken = uniform[n, 1] < probability
            moved = jnp.where(place == i, j, jnp.where(place == j, i, place))
            gain += jnp.where(taken, change, 0.0)
            v, place = v.at[pair].set(jnp.where(taken, new, old)), jnp.where(taken, moved, place)
            return v, place, accept + probability, gain

        zero = jnp.zeros((), v.dtype)
        v, _, accept, gain = lax.fori_loop(0, num, step, (v, jnp.arange(k), zero, zero))
        return v, accept / num, gain

    def _noise_power(self, problem: Problem) -> Array:
        """The power of the likelihood in the noise's steps."""
        return problem.power

    def _update_noise(
        self, key: Array, likelihood: Any, problem: Problem, v: Array, log_noise: Array, now: Array, log_step: Array
    ) -> tuple[Array, Array, Array]:
        """Random walk in log(noise_variance), log p(t) (which is `now` at the start), and mean acceptance."""
        key_step, key_accept = random.split(key)
        power = self._noise_power(problem)
        jumps = jnp.exp(log_step) * random.normal(key_step, (self._num_noise_steps,), v.dtype)
        uniform = random.uniform(key_accept, (self._num_noise_steps,), v.dtype)

        def step(k: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            old, value, prior, total = carry
            new = old + jumps[k]
            new_value, new_prior = likelihood(jnp.exp(new)), self._log_prior(problem, v, new)
            log_ratio = power * new_value + new_prior - power * value - prior
            probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
            probability = jnp.where(jnp.isnan(probability), 0.0, probability)
            chosen = uniform[k] < probability
            pairs = ((new, old), (new_value, value), (new_prior, prior))
            old, value, prior = (jnp.where(chosen, a, b) for a, b in pairs)
            return old, value, prior, total + probability

        begin = (log_noise, now, self._log_prior(problem, v, log_noise), jnp.zeros_like(log_noise))
        log_noise, now, _, total = lax.fori_loop(0, self._num_noise_steps, step, begin)
        return log_noise, now, total / self._num_noise_steps


def _data(model_args: Any, model_kwargs: Any) -> tuple[Any, Any]:
    """Design and t out of the arguments of `MCMC.run`."""

    def only(design: Any, t: Any = None) -> tuple[Any, Any]:
        return design, t

    try:
        design, t = only(*model_args, **(model_kwargs or {}))
    except TypeError as error:
        raise TypeError(
            f"ExchangeGibbs runs with design and t alone, all else goes to its constructor: {error}"
        ) from None
    if t is None:
        raise ValueError("t=None: ExchangeGibbs needs the targets, run(key, design, t)")
    return design, t


def _check_data(design: Any, t: Any) -> None:
    if isinstance(design, Orthonormal):
        n = design.num_obs
    else:
        if jnp.ndim(design) != 2:
            raise ValueError(f"design has shape {jnp.shape(design)}: give a matrix (N, M) or Orthonormal(N)")
        n = jnp.shape(design)[0]
    if jnp.shape(t) != (n,):
        raise ValueError(f"t has shape {jnp.shape(t)}: design has {n} rows, so ({n},) is needed")
    for name, value in (("design", design), ("t", t)):
        known = not isinstance(value, Orthonormal | jax.core.Tracer)
        if known and not np.all(np.isfinite(value)):
            raise ValueError(f"{name} has entries that are not finite: remove them")
    if not isinstance(t, jax.core.Tracer) and not np.any(t):
        raise ValueError("t is zero throughout: there is nothing to fit, and no scale for the bounds")


def _pair_weights(gram: Array) -> Array:
    """How much two columns resemble each other, a symmetric matrix with zeros on its diagonal."""
    weight = jnp.minimum(jnp.abs(gram), 1.0) ** _POWER + _FAR
    return weight * (1 - jnp.eye(len(gram), dtype=gram.dtype))


def partition(key: Array, weight: Array, blocks: int) -> Array:
    """Indices of shape (blocks, k) in which every column occurs, those of a block resembling its first one.

    A random column that is not yet in a block draws others by their weights. The last block is filled up with columns
    that have been in one before.
    """
    free = len(weight)
    k = -(-free // blocks)
    if blocks == 1:
        return jnp.arange(free)[None]

    def draw(used: Array, key: Array) -> tuple[Array, Array]:
        key_first, key_rest = random.split(key)
        first = jnp.argmax(random.uniform(key_first, (free,)) - used)
        score = jnp.log(weight[first]) + random.gumbel(key_rest, (free,), weight.dtype) - 1e6 * used
        _, index = lax.top_k(score.at[first].set(jnp.inf), k)
        return used.at[index].set(1.0), index

    return lax.scan(draw, jnp.zeros(free, weight.dtype), random.split(key, blocks))[1]


def _whole(problem: Problem, v: Array) -> Array:
    """v of the free and of the fixed columns."""
    return jnp.concatenate([v, problem.fixed])


def _unconstrained(v: Array, low: Array, high: Array) -> Array:
    eps = jnp.finfo(v.dtype).eps
    return jax.scipy.special.logit(jnp.clip((v - low) / (high - low), eps, 1 - eps))


def _orthonormal_likelihood(problem: Problem, v: Array) -> Any:
    """log p(t) as a function of sigma^2, O(N)."""
    signal, t2 = jnp.exp(-v), problem.projection**2

    def log_likelihood(noise_variance: Array) -> Array:
        variance = signal + noise_variance
        return -0.5 * jnp.sum(jnp.log(2 * jnp.pi * variance) + t2 / variance)

    return log_likelihood
