"""NumPyro distributions for your own models: priors on a precision, and the likelihood without its weights.

Take three lines of sparse Bayesian learning into any NumPyro model:

    noise_variance = numpyro.sample("noise_variance", dist.InverseGamma(1.0, 1.0))
    alpha = numpyro.sample("alpha", SmoothnessPrecision(c, noise_variance).expand([M]).to_event(1))
    numpyro.sample("t", SparseNormal(design, alpha, noise_variance), obs=t)

**Precisions.** `SmoothnessPrecision`, `PowerPrecision` and `GammaPrecision` are densities of alpha on bounds
[low, high] that may be twenty decades apart, so all their numerics happen in v = log(alpha), where the density per dv
is exp(h(v)) / Z with

    h(v) = -c kappa(v), or v - c kappa(v) with measure="alpha"     (smoothness)
    h(v) = (zeta + 1) v                                            (power)
    h(v) = a v - b e^v                                             (gamma).

Only differences h(v) - h(mode) are ever formed, so that nothing overflows. Each h rises to one mode and falls from it.
The interval in which it stays within 45 nats of the mode is known in closed form, and a Gauss-Legendre rule of fixed
length on it gives the normaliser, the cdf and its inverse, in float32 as in float64 (where log Z is good to twelve
digits for bounds up to forty decades apart). `log_prob` has derivatives of any order in alpha and in every parameter,
those of the normaliser included: Z depends on the noise variance, and to forget it would be wrong. `sample` inverts the
cdf and is differentiable too. There is no mean or variance: of a density spread over twenty decades they tell `high`
and nothing else.

The support is `log_interval(low, high)`, and the bijection that NUTS uses is a sigmoid between log(low) and log(high):
the sampler sees a logarithmic scale, never a linear one. A normaliser has the shape of the parameters, not of the
batch: prefer `.expand([M])`, which computes one, to parameters of shape (M,), which compute M of them, 256 exponentials
each.

**Likelihood.** `SparseNormal` is the distribution of t with the weights integrated out, N(0, C) with
C = sigma^2 I + Phi A^-1 Phi'. With X = Phi A^-1/2 / sigma and y = t / sigma everything follows from the Cholesky factor
of the smaller one of I + X X' (N, N) and I + X' X (M, M):

    e = (I + X X')^-1 y,    omega = X' e,    gamma_m = x_m' (I + X X')^-1 x_m,
    log p(t) = -1/2 [N log(2 pi sigma^2) + log|I + X X'| + e'e + omega'omega],

where omega_m^2 = alpha_m mu_m^2 and gamma_m = 1 - alpha_m Sigma_mm belong to the posterior N(mu, Sigma) of the weights.
The gradient is then the textbook one (T01 eq. 42, 45) and costs one triangular solve more than the value:

    dL/d log(alpha_m) = 1/2 [gamma_m - omega_m^2],    dL/d log(sigma^2) = -1/2 [N - e'e - sum gamma],
    dL/dt = -e / sigma,    dL/dPhi = [e omega' - (I + X X')^-1 X] A^-1/2 / sigma,

the last one only where somebody differentiates the design, as with a kernel width that is learnt. A pruned column is
x_m = 0: alpha may be inf. At the other end the columns' share of C may exceed the noise by 1e12 in float64 and by 1e4
in float32 before digits run out, unless M <= N and the columns are well separated: then there is no such limit. Where
digits have run out values and gradients are rough, but finite.

**Orthonormal dictionaries.** With Phi'Phi = I the likelihood needs z = Phi't alone. Rotate t once, outside the model,
and hand over the rotated vector: a gradient then costs O(N).

    design = Orthonormal(len(t))
    numpyro.sample("t", SparseNormal(design, alpha, noise_variance), obs=design.coordinates(Phi.T @ t, t))

Everything follows the dtype of its arguments, and nothing touches JAX's global settings. For float64 run inside
`jax.enable_x64(True)`, which bounds of 1e-10 and 1e10 deserve. float32, which is JAX's default, serves an `Orthonormal`
design, and fewer columns than rows whose Gram matrix (of unit columns) has a condition number below 1e5. For splines it
gives log p(t) tens of nats too low or high, and chains that look healthy and are wrong. A design is judged once, when
its values are known, and a warning names the remedy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.scipy.linalg import cho_solve, cholesky, solve_triangular
from numpyro import (
    distributions as dist,
)  # a name of the package first: ArviZ 1.x leaves NumPyro to be loaded later, and
from numpyro.distributions import constraints  # to import a submodule of such a one would load it twice
from numpyro.distributions.transforms import Transform, biject_to
from numpyro.distributions.util import promote_shapes, validate_sample
from numpyro.util import not_jax_tracer

__all__ = ["GammaPrecision", "Orthonormal", "PowerPrecision", "SmoothnessPrecision", "SparseNormal", "log_interval"]

Array = jax.Array

_DROP = 45.0  # nats below the mode at which a density counts as zero: e^-45 of it times 46 nats of range is below 1e-17
_PANELS = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


class _LogInterval(constraints.interval):
    """Numbers in [lower_bound, upper_bound], to be moved on a logarithmic scale; both bounds are positive."""

    def feasible_like(self, prototype: Any) -> Array:
        middle = jnp.exp((jnp.log(self.lower_bound) + jnp.log(self.upper_bound)) / 2)
        return jnp.broadcast_to(middle, jnp.shape(prototype))

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _LogInterval) and super().eq(other, static)


log_interval = _LogInterval


class _LogIntervalTransform(Transform):
    """alpha = exp(log low + (log high - log low) sigmoid(x)), from the reals onto log_interval(low, high)."""

    sign = 1

    def __init__(self, low: Any, high: Any):
        self.low, self.high = low, high

    @property
    def codomain(self) -> constraints.Constraint:
        return log_interval(self.low, self.high)

    @property
    def _start(self) -> Array:
        return jnp.log(self.low)

    @property
    def _width(self) -> Array:
        return jnp.log(self.high) - jnp.log(self.low)

    def __call__(self, x: Any) -> Array:
        # exp(log high) may miss high by rounding, and such a point would have no density
        return jnp.clip(jnp.exp(self._start + self._width * jax.nn.sigmoid(x)), self.low, self.high)

    def _inverse(self, y: Any) -> Array:
        share = (jnp.log(y) - self._start) / self._width
        eps = jnp.finfo(share.dtype).eps
        return jax.scipy.special.logit(jnp.clip(share, eps, 1 - eps))  # the ends themselves come from a finite x

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Array:
        return jnp.log(y) + jnp.log(self._width) - jax.nn.softplus(x) - jax.nn.softplus(-x)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return jnp.broadcast_shapes(shape, jnp.shape(self.low), jnp.shape(self.high))

    inverse_shape = forward_shape

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[tuple[str, str], dict[str, Any]]]:
        return (self.low, self.high), (("low", "high"), {})

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _LogIntervalTransform) and self.codomain.eq(other.codomain, static)


@biject_to.register(log_interval)
def _biject_to_log_interval(constraint: Any) -> _LogIntervalTransform:
    return _LogIntervalTransform(constraint.lower_bound, constraint.upper_bound)


class _Precision(dist.Distribution):
    """A density of alpha on [low, high]; a subclass gives `_log_ratio` and `_core`, both in v = log(alpha).

    The methods work on any shapes that broadcast. `_lifted` has one more axis on the right of every parameter, for a
    sum over panels or nodes.
    """

    def __init__(self, validate_args: bool | None, **parameters: Any):
        for name, value in zip(parameters, promote_shapes(*parameters.values()), strict=True):
            setattr(self, name, value)
        super().__init__(jnp.broadcast_shapes(*map(jnp.shape, parameters.values())), (), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return log_interval(self.low, self.high)

    def validate_args(self, strict: bool = True) -> None:
        super().validate_args(strict)
        known = not_jax_tracer(self.low) and not_jax_tracer(self.high)
        if known and not np.all(np.less(self.low, self.high)):
            raise ValueError(f"{type(self).__name__}: low={self.low} must lie below high={self.high}: swap them")

    def _log_ratio(self, x: Array, mode: Array) -> Array:
        """h(mode + x) - h(mode), the log density per dv relative to that at the mode, without cancellation."""
        raise NotImplementedError

    def _core(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """The mode of h on [low, high], and how far to its left and right h may stay within `_DROP` nats of it.

        The distances may be inf, and a little too large, but not too small.
        """
        raise NotImplementedError

    @property
    def _lifted(self) -> _Precision:
        return jax.tree.map(lambda leaf: jnp.expand_dims(leaf, -1), self)

    def _range(self) -> tuple[Array, Array, Array]:
        """The mode, and the ends of what is integrated as distances from it: a narrow peak is resolved exactly.

        Only the bounds move when one differentiates.
        """
        low, high = jnp.log(self.low), jnp.log(self.high)
        mode, left, right = jax.lax.stop_gradient(self._core(low, high))
        return mode, jnp.where(left < mode - low, -left, low - mode), jnp.where(right < high - mode, right, high - mode)

    def _relative_density(self, x: Array, mode: Array) -> Array:
        """exp(h(mode + x) - h(mode)), a divisor: never zero, in float32 neither."""
        return jnp.exp(jnp.maximum(self._log_ratio(x, mode), -80.0))

    def _mass(self, start: Array, stop: Array, mode: Array) -> Array:
        """Integral of exp(h(mode + x) - h(mode)) over [start, stop] by one Gauss-Legendre rule."""
        half = (stop - start) / 2
        nodes, weights = (jnp.asarray(rule, half.dtype) for rule in (_NODES, _WEIGHTS))
        x = ((start + stop) / 2)[..., None] + half[..., None] * nodes
        return half * jnp.sum(weights * jnp.exp(self._lifted._log_ratio(x, mode[..., None])), -1)

    @jax.jit
    def _panels(self) -> tuple[Array, Array, Array, Array]:
        """Mode, left end and width of the panels, and their masses on a last axis of length `_PANELS`."""
        mode, left, right = self._range()
        width = (right - left) / _PANELS
        start = left[..., None] + width[..., None] * jnp.arange(_PANELS)
        return mode, left, width, self._lifted._mass(start, start + width[..., None], mode[..., None])

    def _log_normaliser(self) -> tuple[Array, Array]:
        """The mode, and the log of the integral of exp(h(v) - h(mode)) dv."""
        mode, _, _, masses = self._panels()
        return mode, jnp.log(masses.sum(-1))

    @validate_sample
    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Log density per d alpha, -inf outside the bounds."""
        inside = self.support(value)
        v = jnp.log(jnp.where(inside, value, self.low))
        mode, log_total = self._log_normaliser()
        log_density = self._log_ratio(v - mode, mode) - log_total - v
        return jnp.where(inside, log_density, -jnp.inf).astype(self._dtype(value))

    def cdf(self, value: Any) -> Array:
        """P(alpha <= value), O(panels + nodes) for each value."""
        mode = self._range()[0]
        return self._share(jnp.log(jnp.clip(value, self.low, self.high)) - mode).astype(self._dtype(value))

    @jax.jit
    def _share(self, x: Array) -> Array:
        """P(log(alpha) <= mode + x)."""
        mode, left, width, masses = self._panels()
        x = jnp.clip(x, left, left + _PANELS * width)
        panel = jnp.clip(jnp.floor((x - left) / width), 0, _PANELS - 1)
        inner = self._mass(left + width * panel, x, mode)
        return jnp.minimum((_below(masses, panel) + inner) / masses.sum(-1), 1.0)

    def icdf(self, q: Any) -> Array:
        """The alpha below which a share q lies, differentiable in q and in every parameter.

        Twelve bisections inside the right panel leave a piece on which the density hardly changes, and Newton's method
        does the rest: a fixed length whatever the parameters.
        """
        x = jax.lax.stop_gradient(self)._solve(jax.lax.stop_gradient(q))
        mode, log_total = self._log_normaliser()
        density = jax.lax.stop_gradient(self._relative_density(x, mode) / jnp.exp(log_total))
        # Implicit differentiation: dx = (dq - d cdf) / density, added with the value zero
        miss = q - self._share(x)
        v = mode + x + (miss - jax.lax.stop_gradient(miss)) / density
        return jnp.clip(jnp.exp(v), self.low, self.high).astype(self._dtype(q))

    @jax.jit
    def _solve(self, q: Any) -> Array:
        """The x at which `_share` is q."""
        mode, left, width, masses = self._panels()
        target = q * masses.sum(-1)
        panel = jnp.sum(jnp.cumsum(masses, -1)[..., :-1] <= target[..., None], -1)
        start, rest = left + width * panel, target - _below(masses, panel)

        def step(i: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            low, high, x = state
            excess = self._mass(start, x, mode) - rest
            low, high = jnp.where(excess > 0, low, x), jnp.where(excess > 0, x, high)
            newton = jnp.clip(x - excess / self._relative_density(x, mode), low, high)
            return low, high, jnp.where(i < 12, (low + high) / 2, newton)

        return jax.lax.fori_loop(0, 16, step, (start, start + width, start + width / 2))[2]

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws by the inverse cdf in log(alpha)."""
        return self.icdf(jax.random.uniform(key, self.shape(sample_shape), self._dtype()))

    def expand(self, batch_shape: Sequence[int]) -> dist.Distribution:
        """The same precisions in a larger batch, for which one normaliser serves where there was one."""
        batch_shape = tuple(batch_shape)
        return self if batch_shape == self.batch_shape else _Expanded(self, batch_shape)

    def _dtype(self, *arguments: Any) -> Any:
        """What the parameters and the arguments of a method make of a float."""
        return jnp.result_type(float, *self.get_args().values(), *arguments)


class _Expanded(dist.ExpandedDistribution):
    """NumPyro's expansion, which has no cdf and no quantiles of its own."""

    def cdf(self, value: Any) -> Array:
        return jnp.broadcast_to(self.base_dist.cdf(value), jnp.broadcast_shapes(self.batch_shape, jnp.shape(value)))

    def icdf(self, q: Any) -> Array:
        return jnp.broadcast_to(self.base_dist.icdf(q), jnp.broadcast_shapes(self.batch_shape, jnp.shape(q)))

    def expand(self, batch_shape: Sequence[int]) -> dist.Distribution:
        return _Expanded(self, tuple(batch_shape))


def _below(masses: Array, panel: Array) -> Array:
    """Sum of the masses of the panels before this one: a masked sum, which fuses where a gather would copy."""
    return jnp.sum(jnp.where(jnp.arange(_PANELS) < panel[..., None], masses, 0), -1)


_BOUNDS = {"low": constraints.positive, "high": constraints.positive}


class SmoothnessPrecision(_Precision):
    """The smoothness prior of the sRVM, exp(-c kappa) with kappa = 1 / (1 + noise_variance alpha / scale).

    The density per d log(alpha) (`measure="log"`) or per d alpha (`measure="alpha"`, SE07 eq. 16) is exp(-c kappa) / Z
    on [low, high], where Z depends on the noise variance. See `sbl_ppl.Smoothness` for what the measure means for the
    posterior.

    Parameters
    ----------
    c : array_like
        Severity, >= 0: 1 is AIC, log(N)/2 is BIC, log(N) is RIC.
    noise_variance : array_like
        sigma^2 in the units of t squared.
    scale : array_like
        Squared norm of the column, so that its units do not matter; 1 gives the papers' raw form.
    low, high : array_like
        Bounds of alpha. `high` is a hidden sparsity parameter: report it and vary it.
    measure : {"log", "alpha"}
        What the density exp(-c kappa) is taken with respect to.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "c": constraints.nonnegative,
        "noise_variance": constraints.positive,
        "scale": constraints.positive,
        **_BOUNDS,
    }
    reparametrized_params: ClassVar[list[str]] = [*arg_constraints]
    pytree_aux_fields = ("measure",)

    def __init__(
        self,
        c: Any,
        noise_variance: Any = 1.0,
        scale: Any = 1.0,
        low: Any = 1e-10,
        high: Any = 1e10,
        measure: str = "log",
        *,
        validate_args: bool | None = None,
    ):
        if measure not in ("alpha", "log"):
            raise ValueError(f"measure={measure!r} is unknown: choose 'alpha' (density per d alpha) or 'log'")
        self.measure = measure
        super().__init__(validate_args, c=c, noise_variance=noise_variance, scale=scale, low=low, high=high)

    @property
    def _power(self) -> float:
        return float(self.measure == "alpha")

    @property
    def _centre(self) -> Array:
        """The v at which kappa is one half."""
        return jnp.log(self.scale) - jnp.log(self.noise_variance)

    def _log_ratio(self, x: Array, mode: Array) -> Array:
        towards = self._centre - mode
        return self._power * x - self.c * (jax.nn.sigmoid(towards - x) - jax.nn.sigmoid(towards))

    def _core(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        # h rises throughout; -c kappa alone has fallen by _DROP where kappa = kappa(high) + _DROP / c, if there
        kappa = jax.nn.sigmoid(self._centre - high) + jnp.divide(_DROP, self.c)
        left = jnp.where(kappa < 1, high - self._centre + jax.scipy.special.logit(kappa), jnp.inf)
        left = jnp.minimum(left, _DROP if self._power else jnp.inf)
        return jnp.broadcast_to(high, left.shape), left, jnp.zeros_like(left)


class PowerPrecision(_Precision):
    """alpha^zeta on [low, high]; zeta = -1 is Jeffreys' prior, uniform in log(alpha).

    Parameters
    ----------
    zeta : array_like
        Exponent of the density per d alpha; any real number, because the bounds make it proper.
    low, high : array_like
        Bounds of alpha.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"zeta": constraints.real, **_BOUNDS}
    reparametrized_params: ClassVar[list[str]] = [*arg_constraints]

    def __init__(self, zeta: Any, low: Any = 1e-10, high: Any = 1e10, *, validate_args: bool | None = None):
        super().__init__(validate_args, zeta=zeta, low=low, high=high)

    @property
    def _power(self) -> Array:
        return jnp.add(self.zeta, 1.0)

    def _log_ratio(self, x: Array, mode: Array) -> Array:
        return self._power * x

    def _core(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        mode = jnp.where(self._power > 0, high, low)
        reach = _DROP / jnp.abs(self._power)
        return mode, reach, reach

    def _log_normaliser(self) -> tuple[Array, Array]:
        # In closed form: the integral of e^(p (v - mode)) is e^(p (middle - mode)) times 2 sinh(p width / 2) / p
        mode, _, _ = self._range()
        low, high = jnp.log(self.low), jnp.log(self.high)
        return mode, self._power * ((low + high) / 2 - mode) + jnp.log(high - low) + _log_sinhc(
            self._power * (high - low) / 2
        )


def _log_sinhc(x: Array) -> Array:
    """log(sinh(x) / x), even and smooth at zero, without overflow."""
    small = jnp.abs(x) < 0.1
    y = jnp.where(small, 1.0, jnp.abs(x))
    square = jnp.where(small, x, 0.0) ** 2
    series = square / 6 - square**2 / 180 + square**3 / 2835 - square**4 / 37800
    return jnp.where(small, series, y + jnp.log(-jnp.expm1(-2 * y) / (2 * y)))


class GammaPrecision(_Precision):
    """alpha^(a-1) exp(-b alpha) on [low, high]: T01's hyperprior, of which a, b -> 0 is Jeffreys' prior.

    Parameters
    ----------
    a, b : array_like
        Shape and rate, both >= 0; the bounds make the density proper even at zero.
    low, high : array_like
        Bounds of alpha. b low must stay below 1e10: beyond it the density is narrower than log(alpha) can resolve.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"a": constraints.nonnegative, "b": constraints.nonnegative, **_BOUNDS}
    reparametrized_params: ClassVar[list[str]] = [*arg_constraints]

    def __init__(self, a: Any, b: Any, low: Any = 1e-10, high: Any = 1e10, *, validate_args: bool | None = None):
        super().__init__(validate_args, a=a, b=b, low=low, high=high)

    def _log_ratio(self, x: Array, mode: Array) -> Array:
        return self.a * x - self.b * jnp.exp(mode) * jnp.expm1(x)

    def _core(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        # At x from the mode h has fallen by slope |x| + q (x - 1 + e^-x) on the left and slope x + q (e^x - 1 - x) on
        # the right. The brackets are at least x^2 / (2 + x), and k^2 where e^x = (1 + k)^2.
        a, b = jnp.asarray(self.a), jnp.asarray(self.b)
        mode = jnp.where(b * jnp.exp(high) <= a, high, jnp.clip(jnp.log(a) - jnp.log(b), low, high))
        q = b * jnp.exp(mode)
        straight, ratio = _DROP / jnp.abs(a - q), _DROP / q
        left = jnp.minimum(straight, (ratio + jnp.sqrt(ratio**2 + 8 * ratio)) / 2)
        return mode, left, jnp.minimum(straight, 2 * jnp.log1p(jnp.sqrt(ratio)))


@jax.tree_util.register_static
@dataclass(frozen=True)
class Orthonormal:
    """A dictionary with orthonormal columns, Phi'Phi = I, as the design of a `SparseNormal`.

    The event is then not t but t in an orthonormal basis that begins with the M columns: a rotation, which leaves the
    density as it is, and in which C is diagonal. So a value and a gradient cost O(N), and no matrix is needed.

    Parameters
    ----------
    num_obs : int
        N, at least as large as the number of columns.
    """

    num_obs: int

    def coordinates(self, projection: Any, t: Any) -> Array:
        """The rotated t: z = Phi't, of shape (M,), and one number for the part of t outside the columns' span.

        Of that part only the norm matters, so it stands in the first of the N - M remaining places.
        """
        z, t = jnp.asarray(projection), jnp.asarray(t)
        rest = self.num_obs - z.shape[-1]
        if t.shape[-1] != self.num_obs or rest < 0:
            raise ValueError(
                f"t has {t.shape[-1]} entries and Phi't {z.shape[-1]}: the former must be num_obs={self.num_obs}, "
                "the latter at most that"
            )
        outside = jnp.sqrt(jnp.maximum(jnp.sum(t**2, -1) - jnp.sum(z**2, -1), 0))[..., None]
        filling = jnp.zeros((*outside.shape[:-1], max(rest - 1, 0)), outside.dtype)
        return jnp.concatenate([z, outside, filling] if rest else [z], -1)


# In trials log p(t) was right within a tenth of a nat where eps times the condition number stayed below this
_SINGLE = 0.03
_REMEDY = "run inside `with jax.enable_x64(True):`, or call numpyro.enable_x64() first"
_judged: WeakValueDictionary[tuple[int, bool], Any] = WeakValueDictionary()


def _is_single() -> bool:
    return jnp.result_type(float) == jnp.float32


def check_digits(design: Any, wide: bool) -> None:
    """Warn, once a design, if float32 is in use and too short for it; what is traced is not known and passes.

    `wide` says that I + X X' will be factorised, at whatever alpha, where a single small one hides the noise. Otherwise
    it is I + X'X, and no alpha can make its condition worse, but for a diagonal scaling, than that of the Gram matrix.
    """
    known = not isinstance(design, Orthonormal) and not_jax_tracer(design)
    if not _is_single() or not known or _judged.get((id(design), wide)) is design:
        return
    if isinstance(design, np.ndarray | jax.Array):
        _judged[id(design), wide] = design
    matrix = np.asarray(design, np.float64)
    if not np.isfinite(matrix).all():
        return
    if wide:
        _warn_of_single("{} columns and {} rows, where a small precision hides the noise".format(*matrix.shape[::-1]))
        return
    norms = np.linalg.norm(matrix, axis=0)
    unit = matrix[:, norms > 0] / norms[norms > 0]
    values = np.linalg.eigvalsh(unit.T @ unit)
    condition = values[-1] / max(values[0], np.finfo(float).tiny) if len(values) else 1.0
    if condition > _SINGLE / np.finfo(np.float32).eps:
        _warn_of_single(f"columns as nearly dependent as these (condition number {min(condition, 1e16):.0e})")


def _check_share(design: Any, alpha: Any, noise_variance: Any) -> None:
    """Warn if float32 is in use and I + X X', at this alpha, too badly conditioned for it."""
    known = all(map(not_jax_tracer, (design, alpha, noise_variance)))
    if not _is_single() or not known or _judged.get((id(design), True)) is design:
        return
    with np.errstate(all="ignore"):
        share = np.sum(np.sum(np.square(design), 0) / np.asarray(alpha), -1) / np.asarray(noise_variance)
    if np.max(share, initial=0.0) > _SINGLE / np.finfo(np.float32).eps:
        _warn_of_single(f"a variance of t that exceeds the noise {np.max(share):.0e} times")


def _warn_of_single(reason: str) -> None:
    message = f"float32 has too few digits for {reason}, and log p(t) may be wrong by many nats, or NaN: {_REMEDY}"
    warnings.warn(message, UserWarning, stacklevel=5)


class _Solution(NamedTuple):
    """What follows from the Cholesky factor of I + X'X (if M <= N) or I + X X', for one t; see the module."""

    log_density: Array
    factor: Array
    X: Array
    e: Array
    omega: Array


def _factor(gram: Array) -> Array:
    """Lower Cholesky factor of I + gram.

    The diagonal is raised by about as much as the factorisation rounds, 2 sqrt(k) eps of it: too little to be seen,
    and enough that it succeeded in all trials with random, duplicated and kernel columns, whatever alpha.
    """
    diagonal, k = jnp.diagonal(gram), len(gram)
    ridge = 2 * k**0.5 * float(jnp.finfo(gram.dtype).eps) * (1 + diagonal)
    return cholesky(gram + jnp.diag(1 + ridge), lower=True)


def _solve_normal(design: Array, t: Array, alpha: Array, noise_variance: Array) -> _Solution:
    n, m = design.shape
    X, y = design / jnp.sqrt(alpha * noise_variance), t / jnp.sqrt(noise_variance)
    # A Cholesky factorisation does not feel a diagonal scaling. So in I + X'X a small alpha does no harm to columns
    # that are independent, while in I + X X' it hides the noise: hence the former for M = N.
    if m <= n:
        factor = _factor(X.T @ X)
        omega = cho_solve((factor, True), y @ X)
        e = y - X @ omega
    else:
        factor = _factor(X @ X.T)
        e = cho_solve((factor, True), y)
        omega = e @ X
    # e'e + omega'omega and not y'e: it has no cancellation
    quadratic = n * jnp.log(2 * jnp.pi * noise_variance) + e @ e + omega @ omega
    return _Solution(-0.5 * quadratic - jnp.sum(jnp.log(jnp.diagonal(factor))), factor, X, e, omega)


@jax.custom_jvp
def _log_density(design: Array, t: Array, alpha: Array, noise_variance: Array) -> Array:
    return _solve_normal(design, t, alpha, noise_variance).log_density


# A jvp rule, linear in the tangents, serves forward and reverse mode alike; and with symbolic zeros it knows what is
# not differentiated, so that nobody pays for dL/dPhi who does not ask for it.
@partial(_log_density.defjvp, symbolic_zeros=True)
def _log_density_jvp(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    design, _, alpha, noise_variance = primals
    d_design, d_t, d_alpha, d_noise = tangents
    asked = [not isinstance(tangent, SymbolicZero) for tangent in tangents]
    (n, m), (value, L, X, e, omega) = design.shape, _solve_normal(*primals)
    change = jnp.zeros_like(value)
    if asked[1]:
        change -= (e / jnp.sqrt(noise_variance)) @ d_t
    if asked[0] or asked[2] or asked[3]:
        half = solve_triangular(L, jnp.eye(m, dtype=X.dtype) if m <= n else X, lower=True)
        gamma = 1 - jnp.sum(half**2, 0) if m <= n else jnp.sum(half**2, 0)
    if asked[2]:
        change += 0.5 * ((gamma - omega**2) / alpha) @ d_alpha
    if asked[3]:
        change -= 0.5 * (n - e @ e - gamma.sum()) / noise_variance * d_noise
    if asked[0]:
        inverse_X = X @ (half.T @ half) if m <= n else solve_triangular(L, half, lower=True, trans=1)
        change += jnp.sum((jnp.outer(e, omega) - inverse_X) / jnp.sqrt(alpha * noise_variance) * d_design)
    return value, change


class SparseNormal(dist.Distribution):
    """t ~ N(0, C) with C = noise_variance I + Phi diag(1/alpha) Phi': the likelihood with the weights integrated out.

    `log_prob` has an analytic gradient with respect to alpha, the noise variance, t and the design, in forward and in
    reverse mode. A value costs O(N M k + k^3) with k = min(N, M), and O(N) with an `Orthonormal` design; a gradient
    about twice that.

    Parameters
    ----------
    design : array_like of shape (N, M), or Orthonormal
        The columns Phi.
    alpha : array_like of shape (..., M)
        Precisions of the weights; inf means that a column is absent.
    noise_variance : array_like of shape (...)
        sigma^2. Both broadcast to the batch shape; the event shape is (N,).

    Warns
    -----
    UserWarning
        In float32, if that has too few digits for the design.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "design": constraints.dependent,
        "alpha": constraints.independent(constraints.positive, 1),
        "noise_variance": constraints.positive,
    }
    support = constraints.real_vector
    reparametrized_params: ClassVar[list[str]] = [*arg_constraints]
    design: Any

    def __init__(self, design: Any, alpha: Any, noise_variance: Any, *, validate_args: bool | None = None):
        self.design = design if isinstance(design, Orthonormal) else jnp.asarray(design)
        self.alpha, self.noise_variance = jnp.asarray(alpha), jnp.asarray(noise_variance)
        if self._diagonal:
            n, fits = design.num_obs, self.alpha.ndim > 0 and self.alpha.shape[-1] <= design.num_obs
        else:
            if self.design.ndim != 2:
                raise ValueError(f"design has shape {self.design.shape}: give a matrix (N, M) or Orthonormal(N)")
            n, fits = self.design.shape[0], self.alpha.shape[-1:] == self.design.shape[1:]
        if not fits:
            raise ValueError(f"alpha has shape {self.alpha.shape}: its last axis must be that of the columns of design")
        batch_shape = jnp.broadcast_shapes(self.alpha.shape[:-1], self.noise_variance.shape)
        super().__init__(batch_shape, (n,), validate_args=validate_args)
        if self._diagonal or self.alpha.shape[-1] <= n:
            check_digits(design, wide=False)
        else:
            _check_share(design, alpha, noise_variance)

    @property
    def _diagonal(self) -> bool:
        return isinstance(self.design, Orthonormal)

    def _batched(self, function: Callable[..., Any], signature: str, *arrays: Any) -> Any:
        """function(*arrays, alpha, noise_variance) over all batch axes."""
        return jnp.vectorize(function, signature=signature)(*arrays, self.alpha, self.noise_variance)

    @property
    def mean(self) -> Array:
        return jnp.zeros(self.shape(), jnp.result_type(float, self.alpha, self.noise_variance))

    @property
    def variance(self) -> Array:
        """The diagonal of C."""
        noise = self.noise_variance[..., None]
        if self._diagonal:
            rest = [(0, 0)] * (self.alpha.ndim - 1) + [(0, self.event_shape[0] - self.alpha.shape[-1])]
            signal = jnp.pad(1 / self.alpha, rest)
        else:
            signal = (1 / self.alpha) @ (self.design**2).T
        return jnp.broadcast_to(noise + signal, self.shape())

    @validate_sample
    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Log density of t, or of its rotation if the design is `Orthonormal`."""
        if self._diagonal:
            return -0.5 * jnp.sum(jnp.log(2 * jnp.pi * self.variance) + jnp.square(value) / self.variance, -1)
        return self._batched(partial(_log_density, self.design), "(n),(m),()->()", value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of t, O(N M) each."""
        shape, m = self.shape(sample_shape), self.alpha.shape[-1]
        dtype = self.mean.dtype
        if self._diagonal:
            return jnp.sqrt(self.variance) * jax.random.normal(key, shape, dtype)
        noise, weights = jax.random.split(key)
        weights = jax.random.normal(weights, (*shape[:-1], m), dtype) / jnp.sqrt(self.alpha)
        noise = jnp.sqrt(self.noise_variance)[..., None] * jax.random.normal(noise, shape, dtype)
        return weights @ self.design.T + noise

    def weights(self, t: Any) -> tuple[Array, Array]:
        """Mean (..., M) and covariance (..., M, M) of the weights given t, O(N M^2 + M^3)."""

        def dense(t: Array, alpha: Array, noise_variance: Array) -> tuple[Array, Array]:
            scale = 1 / jnp.sqrt(alpha)
            X, y = self.design * scale / jnp.sqrt(noise_variance), t / jnp.sqrt(noise_variance)
            L = _factor(X.T @ X)
            half = solve_triangular(L, jnp.diag(scale), lower=True)
            return scale * cho_solve((L, True), y @ X), half.T @ half

        def diagonal(t: Array, alpha: Array, noise_variance: Array) -> tuple[Array, Array]:
            kappa = 1 / (1 + alpha * noise_variance)
            return kappa * t[: len(alpha)], jnp.diag(kappa * noise_variance)

        return self._batched(diagonal if self._diagonal else dense, "(n),(m),()->(m),(m,m)", t)

    def gamma(self) -> Array:
        """How well data determine each weight, 1 - alpha_m Sigma_mm, of shape (..., M); it does not depend on t."""

        def dense(alpha: Array, noise_variance: Array) -> Array:
            n, m = self.design.shape
            X = self.design / jnp.sqrt(alpha * noise_variance)
            L = _factor(X.T @ X if m <= n else X @ X.T)
            half = solve_triangular(L, jnp.eye(m, dtype=X.dtype) if m <= n else X, lower=True)
            return 1 - jnp.sum(half**2, 0) if m <= n else jnp.sum(half**2, 0)

        def diagonal(alpha: Array, noise_variance: Array) -> Array:
            return 1 / (1 + alpha * noise_variance)

        return self._batched(diagonal if self._diagonal else dense, "(m),()->(m)")

    def sample_weights(self, key: Array, t: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws of the weights given t, of shape sample_shape + (..., M).

        For M <= N from the factor of I + X'X. For M > N by drawing weights and data from the prior and correcting the
        weights by the misfit, w + A^-1 Phi' C^-1 (t - t_drawn), which costs O(N^2 M) and forms no covariance.
        """
        n, m = self.event_shape[0], self.alpha.shape[-1]

        def tall(t: Array, normal: Array, alpha: Array, noise_variance: Array) -> Array:
            solution = _solve_normal(self.design, t, alpha, noise_variance)
            return (solution.omega + solve_triangular(solution.factor, normal, lower=True, trans=1)) / jnp.sqrt(alpha)

        def wide(t: Array, normal: Array, alpha: Array, noise_variance: Array) -> Array:
            drawn = normal[:m]
            fake = jnp.sqrt(noise_variance) * normal[m:] + self.design @ (drawn / jnp.sqrt(alpha))
            return (drawn + _solve_normal(self.design, t - fake, alpha, noise_variance).omega) / jnp.sqrt(alpha)

        def diagonal(t: Array, normal: Array, alpha: Array, noise_variance: Array) -> Array:
            kappa = 1 / (1 + alpha * noise_variance)
            return kappa * t[:m] + jnp.sqrt(kappa * noise_variance) * normal

        draw, size = (diagonal, m) if self._diagonal else (tall, m) if m <= n else (wide, m + n)
        shape = (*sample_shape, *jnp.broadcast_shapes(self.batch_shape, jnp.shape(t)[:-1]), size)
        normal = jax.random.normal(key, shape, self.mean.dtype)
        return self._batched(draw, "(n),(k),(m),()->(m)", t, normal)

    def leave_one_out(self, t: Any) -> tuple[Array, Array]:
        """Mean and variance of each t_n given all the others, both of shape (..., N).

        Exactly, from one factorisation: t_n - g_n / k_n and 1 / k_n with g = C^-1 t and k = diag(C^-1).
        """
        if self._diagonal:
            raise ValueError("leave_one_out needs the observations, not their rotation: give the matrix as design")
        n, m = self.design.shape

        def solve(t: Array, alpha: Array, noise_variance: Array) -> tuple[Array, Array]:
            _, L, X, e, _ = _solve_normal(self.design, t, alpha, noise_variance)
            half = solve_triangular(L, X.T if m <= n else jnp.eye(n, dtype=X.dtype), lower=True)
            k = 1 - jnp.sum(half**2, 0) if m <= n else jnp.sum(half**2, 0)
            return t - jnp.sqrt(noise_variance) * e / k, noise_variance / k

        return self._batched(solve, "(n),(m),()->(n),(n)", t)
