"""The NumPyro distributions: against dense formulas and quadrature, in both precisions, through every JAX transform."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import reference
from numpyro.distributions import biject_to, constraints
from numpyro.infer import MCMC, NUTS, Predictive
from scipy import integrate, stats

from sbl_ppl.distributions import (
    GammaPrecision,
    Orthonormal,
    PowerPrecision,
    SmoothnessPrecision,
    SparseNormal,
    log_interval,
)

WIDE, NARROW = {"low": 1e-10, "high": 1e10}, {"low": 0.03, "high": 40.0}
KINDS = {SmoothnessPrecision: "smoothness", PowerPrecision: "power", GammaPrecision: "gamma"}
# The last four put the mass on a bound or on a peak of width 0.01, or make Z depend strongly on the noise.
CASES = {
    "smoothness": (SmoothnessPrecision, {"c": 3.0, "noise_variance": 0.2, "scale": 4.0, **WIDE}),
    "smoothness narrow": (SmoothnessPrecision, {"c": 3.0, "noise_variance": 0.2, "scale": 4.0, **NARROW}),
    "smoothness per d alpha": (SmoothnessPrecision, {"c": 3.0, "noise_variance": 0.2, "measure": "alpha", **WIDE}),
    "Jeffreys": (PowerPrecision, {"zeta": -1.0, **WIDE}),
    "flat": (PowerPrecision, {"zeta": 0.0, **WIDE}),
    "power narrow": (PowerPrecision, {"zeta": -1.7, **NARROW}),
    "gamma vague": (GammaPrecision, {"a": 1e-4, "b": 1e-4, **WIDE}),
    "gamma narrow": (GammaPrecision, {"a": 2.0, "b": 0.3, **NARROW}),
    "smoothness harsh": (SmoothnessPrecision, {"c": 200.0, "noise_variance": 1e-9, **WIDE}),
    "power steep": (PowerPrecision, {"zeta": 6.0, **WIDE}),
    "gamma peaked": (GammaPrecision, {"a": 1e4, "b": 30.0, **WIDE}),
    "gamma at low": (GammaPrecision, {"a": 0.5, "b": 300.0, "low": 1.0, "high": 1e10}),
}
each_case = pytest.mark.parametrize("case", CASES)
each_bounds = pytest.mark.parametrize("bounds", [WIDE, NARROW], ids=["wide", "narrow"])
FALSE_ALARM = 1e-4

# A distribution is a pytree: one compilation serves all cases of a family.
log_prob = jax.jit(lambda distribution, value: distribution.log_prob(value))
cdf = jax.jit(lambda distribution, value: distribution.cdf(value))
icdf = jax.jit(lambda distribution, q: distribution.icdf(q))
draw = jax.jit(lambda distribution, key, shape: distribution.sample(key, shape), static_argnums=2)


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def make(case, **changes):
    family, parameters = CASES[case]
    return family(**{**parameters, **changes})


def log_density(case, alpha, coordinate="alpha"):
    """Of the dense formulas."""
    family, parameters = CASES[case]
    rest = {"noise_variance": 1.0, "scale": 1.0, "measure": "log", **parameters}
    positional = [rest.pop(name) for name in ("noise_variance", "scale", "low", "high", "measure")]
    return reference.log_prior(KINDS[family], alpha, *positional, coordinate, **rest)


def between(case, num):
    """From low to high in equal steps of log(alpha); both ends may miss the bounds by rounding."""
    return np.linspace(np.log(CASES[case][1]["low"]), np.log(CASES[case][1]["high"]), num)


def inside(case, v):
    return np.clip(np.exp(v), CASES[case][1]["low"], CASES[case][1]["high"])


@functools.cache
def quantiles(case):
    """A grid of log(alpha) that resolves the density, and the cdf on it, from the dense formulas."""
    v = between(case, 20001)
    for _ in range(2):  # once more where the mass is
        log_f = log_density(case, inside(case, v), "log")
        mass = np.flatnonzero(log_f > log_f.max() - 40.0)
        v = np.linspace(v[max(mass[0] - 1, 0)], v[min(mass[-1] + 1, len(v) - 1)], len(v))
    return v, integrate.cumulative_simpson(np.exp(log_density(case, inside(case, v), "log")), x=v, initial=0.0)


@functools.cache
def points(case):
    """Five alphas where the mass is, and five anywhere between the bounds."""
    v, shares = quantiles(case)
    return np.exp(np.concatenate([np.interp([0.01, 0.2, 0.5, 0.8, 0.99], shares, v), between(case, 7)[1:-1]]))


def resolution(case, dtype):
    """How much of the mass the rounding of log(alpha) may move."""
    v, shares = quantiles(case)
    steepest = np.max(np.diff(shares) / np.diff(v))
    return float(jnp.finfo(dtype).eps) * (1.0 + np.abs(v).max()) * steepest


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def of_vector(method, family, measure, theta):
    """log_prob(exp(theta[0])) or log icdf(theta[0]); the rest of theta are all parameters, positive ones in logs."""
    pairs = zip(family.arg_constraints, theta[1:], strict=True)
    parameters = {name: value if name == "zeta" else jnp.exp(value) for name, value in pairs}
    if measure:
        parameters["measure"] = measure
    distribution = family(**parameters, validate_args=False)
    return distribution.log_prob(jnp.exp(theta[0])) if method == "log_prob" else jnp.log(distribution.icdf(theta[0]))


normalisers = jax.jit(lambda d: (d._log_normaliser(), super(PowerPrecision, d)._log_normaliser()))
gradient_of_vector = jax.jit(jax.grad(of_vector, 3), static_argnums=(0, 1, 2))


def check_gradient(method, case, first, step=1e-4):
    distribution = make(case)
    static = method, type(distribution), getattr(distribution, "measure", None)
    values = {name: getattr(distribution, name) for name in distribution.arg_constraints}
    theta = np.array([first, *(value if name == "zeta" else np.log(value) for name, value in values.items())])
    slopes = reference.finite_difference(lambda theta: of_vector(*static, theta), theta, step)
    np.testing.assert_allclose(
        gradient_of_vector(*static, theta), slopes, rtol=1e-6, atol=1e-7 * max(1.0, np.abs(slopes).max())
    )


class TestPrecision:
    @each_case
    def test_log_prob_equals_the_dense_formula(self, case, dtype):
        alpha = points(case)
        value, expected = log_prob(make(case), jnp.asarray(alpha, dtype)), log_density(case, alpha)
        assert value.dtype == dtype
        # log(alpha) is rounded, and the slope of the log density multiplies that
        step = 1e-6 * np.array([[1.0], [-1.0]])
        slope = np.abs(np.diff(log_density(case, inside(case, np.log(alpha) + step)), axis=0))[0] / 2e-6
        tolerance = float(jnp.finfo(dtype).eps) * (100.0 + 50.0 * slope + 10.0 * np.abs(expected))
        assert np.all(np.abs(value - expected) <= np.maximum(tolerance, 1e-9 * np.maximum(1.0, np.abs(expected))))

    @each_case
    def test_density_integrates_to_one(self, case, x64):
        v, _ = quantiles(case)
        density = np.exp(np.asarray(log_prob(make(case), inside(case, v))) + v)
        assert integrate.simpson(density, x=v) == pytest.approx(1.0, abs=1e-8)

    @pytest.mark.parametrize("zeta", [-40.0, -1.7, -1.0, -1.0 + 1e-6, 0.0, 6.0])
    @each_bounds
    def test_closed_form_of_power_equals_the_quadrature(self, zeta, bounds, x64):
        np.testing.assert_allclose(*normalisers(PowerPrecision(zeta, **bounds)), rtol=1e-11, atol=1e-12)

    @each_case
    def test_gradient_in_value_and_every_parameter(self, case, x64):
        for alpha in points(case)[1:4]:
            check_gradient("log_prob", case, np.log(alpha))

    @pytest.mark.parametrize("zeta", [-1.0, -1.0 + 1e-9, -0.9999, -0.97, -0.5, 300.0])
    def test_power_is_smooth_around_jeffreys(self, zeta, x64):
        # The closed form has a removable singularity there: d log p / d zeta = log(alpha) - E log(alpha)
        static, theta = ("log_prob", PowerPrecision, None), np.log([7.0, 1.0, 1e-3, 1e3])
        theta[1] = zeta
        slopes = reference.finite_difference(lambda theta: of_vector(*static, theta), theta)
        gradient = gradient_of_vector(*static, theta)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-7, atol=1e-7)
        if zeta == -1.0:
            np.testing.assert_allclose(gradient[1], np.log(7.0), rtol=1e-12)

    @each_case
    def test_cdf_equals_the_integral(self, case, dtype):
        v, expected = quantiles(case)
        pick = np.linspace(0, len(v) - 1, 10).astype(int)
        shares = cdf(make(case), jnp.asarray(np.exp(v[pick]), dtype))
        assert shares.dtype == dtype
        np.testing.assert_allclose(shares, expected[pick], atol=1e-8 + 10.0 * resolution(case, dtype))

    @each_case
    def test_cdf_and_icdf_are_inverse(self, case, dtype):
        distribution = make(case)
        q = jnp.asarray([0.0, 1e-6, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0], dtype)
        alpha = icdf(distribution, q)
        assert alpha.dtype == dtype
        assert np.all(np.diff(alpha) >= 0)
        assert np.all(distribution.support(alpha))
        np.testing.assert_allclose(cdf(distribution, alpha), q, atol=10.0 * resolution(case, dtype))

    @each_case
    def test_icdf_is_differentiable(self, case, x64):
        check_gradient("icdf", case, 0.37, step=1e-3)

    @each_case
    def test_samples_follow_the_density(self, case, dtype):
        draws = draw(make(case), jax.random.key(1), (4000,))
        assert draws.dtype == dtype
        assert np.all(make(case).support(draws))
        assert (
            stats.kstest(np.log(np.asarray(draws, float)), lambda x: np.interp(x, *quantiles(case))).pvalue
            > FALSE_ALARM
        )

    def test_goodness_of_fit_sees_the_wrong_measure(self, x64):
        draws = draw(make("smoothness narrow", measure="alpha"), jax.random.key(1), (4000,))
        assert stats.kstest(np.log(draws), lambda x: np.interp(x, *quantiles("smoothness narrow"))).pvalue < FALSE_ALARM

    def test_shapes(self, x64):
        c, scale = jnp.ones((3, 1)), jnp.arange(1.0, 5.0)
        distribution = SmoothnessPrecision(c, 0.1, scale)
        assert (distribution.batch_shape, distribution.event_shape) == ((3, 4), ())
        draws = draw(distribution, jax.random.key(0), (5, 2))
        assert draws.shape == distribution.shape((5, 2)) == (5, 2, 3, 4)
        for function in (log_prob, cdf, icdf):
            value = jax.ShapeDtypeStruct((5, 2, 1, 4), float)
            assert jax.eval_shape(function, distribution, value).shape == (5, 2, 3, 4)
        values = log_prob(distribution, draws)[0, 0]
        for i, j in [(0, 0), (2, 1), (1, 3)]:
            alone = log_prob(SmoothnessPrecision(c[i, 0], 0.1, scale[j]), draws[0, 0, i, j])
            np.testing.assert_allclose(values[i, j], alone, rtol=1e-5)

    def test_expand_and_to_event(self, x64):
        expanded = make("gamma vague").expand([3, 2])
        draws = draw(expanded, jax.random.key(0), (4,))
        assert draws.shape == (4, 3, 2)
        assert len(np.unique(draws)) == draws.size
        event = expanded.to_event(1)
        assert (event.batch_shape, event.event_shape) == ((3,), (2,))
        np.testing.assert_allclose(log_prob(event, draws), log_prob(make("gamma vague"), draws).sum(-1), rtol=1e-12)

    def test_pytree_and_vmap(self, x64):
        distribution, alpha = make("smoothness per d alpha"), jnp.asarray(points("smoothness per d alpha"))
        leaves, tree = jax.tree.flatten(distribution)
        again = jax.tree.unflatten(tree, leaves)
        expected = log_prob(distribution, alpha)
        np.testing.assert_array_equal(log_prob(again, alpha), expected)
        assert again.measure == distribution.measure
        assert again.support == distribution.support
        np.testing.assert_allclose(jax.vmap(log_prob, (None, 0))(distribution, alpha), expected, rtol=1e-10)
        stacked = jax.tree.map(lambda leaf: jnp.full(10, leaf), distribution)
        np.testing.assert_allclose(jax.vmap(log_prob)(stacked, alpha), expected, rtol=1e-10)
        shares = jax.vmap(cdf)(stacked, alpha)
        np.testing.assert_allclose(shares, cdf(distribution, alpha), rtol=1e-10)
        np.testing.assert_allclose(jax.vmap(icdf)(stacked, shares), alpha, rtol=1e-9)

    def test_results_follow_the_dtype_of_the_arguments(self, x64):
        single = jnp.float32(2.0)
        assert jax.eval_shape(log_prob, SmoothnessPrecision(3.0), single).dtype == jnp.float32
        assert draw(SmoothnessPrecision(single), jax.random.key(0), ()).dtype == jnp.float32
        assert draw(SmoothnessPrecision(3), jax.random.key(0), ()).dtype == jnp.float64

    @pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
    def test_gamma_at_zero(self, a, b, x64):
        expected = reference.log_prior("gamma", 0.3, 1.0, 1.0, 1e-10, 1e10, a=a, b=b)
        value, slopes = jax.value_and_grad(log_prob)(GammaPrecision(a, b), 0.3)
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        assert np.isfinite(jax.tree.leaves(slopes)).all()

    def test_no_smoothness_is_jeffreys_or_flat(self, x64):
        alpha = np.exp(between("smoothness", 9)[1:-1])
        for measure, zeta in (("log", -1.0), ("alpha", 0.0)):
            value = log_prob(SmoothnessPrecision(0.0, measure=measure), alpha)
            np.testing.assert_allclose(value, log_prob(PowerPrecision(zeta), alpha), rtol=1e-12)

    def test_outside_the_bounds(self, dtype):
        outside = jnp.asarray([1e-3, -1.0, 0.0, 50.0, jnp.inf], dtype)
        distribution = SmoothnessPrecision(2.0, **NARROW)
        value, slopes = jax.jit(jax.value_and_grad(lambda x: log_prob(distribution, x)[0]))(outside)
        assert value == -jnp.inf
        assert np.all(slopes == 0)
        np.testing.assert_allclose(cdf(distribution, outside), [0, 0, 0, 1, 1], rtol=1e-6)
        assert np.isfinite(log_prob(distribution, jnp.asarray([*NARROW.values()], dtype))).all()

    def test_validation_warns_of_values_outside_the_bounds(self):
        with pytest.warns(UserWarning, match="Out-of-support"):
            assert PowerPrecision(2.0, **NARROW, validate_args=True).log_prob(100.0) == -jnp.inf

    @pytest.mark.parametrize(
        ("build", "match"),
        [
            (lambda: SmoothnessPrecision(-1.0, validate_args=True), "invalid c"),
            (lambda: SmoothnessPrecision(1.0, 0.0, validate_args=True), "invalid noise_variance"),
            (lambda: SmoothnessPrecision(1.0, scale=np.array([1.0, -1.0]), validate_args=True), "invalid scale"),
            (lambda: GammaPrecision(-1.0, 1.0, validate_args=True), "invalid a"),
            (lambda: GammaPrecision(1.0, -1.0, validate_args=True), "invalid b"),
            (lambda: PowerPrecision(-1.0, low=0.0, validate_args=True), "invalid low"),
            (lambda: PowerPrecision(-1.0, high=-1.0, validate_args=True), "invalid high"),
            (lambda: PowerPrecision(-1.0, 2.0, 1.0, validate_args=True), "low=2.0 must lie below high=1.0"),
            (lambda: SmoothnessPrecision(1.0, measure="linear"), "measure='linear' is unknown"),
            (lambda: SmoothnessPrecision(jnp.ones(3), scale=jnp.ones(2)), "Incompatible shapes|broadcast"),
        ],
    )
    def test_invalid_arguments(self, build, match):
        with pytest.raises(ValueError, match=match):
            build()

    @pytest.mark.parametrize(
        "distribution",
        [SmoothnessPrecision(3.0, np.full(1000, 0.1)), GammaPrecision(np.ones(1000), 1e-4)],
        ids=["smoothness", "gamma"],
    )
    def test_a_thousand_components_take_less_than_a_second(self, distribution):
        @jax.jit
        def everything(distribution, key):
            alpha = distribution.sample(key)
            slopes = jax.grad(lambda alpha: distribution.log_prob(alpha).sum())(alpha)
            return slopes, distribution.icdf(distribution.cdf(alpha))

        jax.block_until_ready(everything(distribution, jax.random.key(0)))
        start = time.perf_counter()
        jax.block_until_ready(everything(distribution, jax.random.key(1)))
        assert time.perf_counter() - start < 1.0


@jax.jit
def through(transform, x):
    """Forwards, backwards, and the log slope by autodiff and by both formulas."""
    y = transform(x)
    back, autodiff = transform.inv(y), jnp.log(jax.vmap(jax.grad(transform))(x))
    return y, back, autodiff, transform.log_abs_det_jacobian(x, y), transform.inv.log_abs_det_jacobian(y, x)


class TestLogInterval:
    @each_bounds
    def test_round_trip_and_jacobian(self, bounds, dtype):
        transform, eps = biject_to(log_interval(*bounds.values())), float(jnp.finfo(dtype).eps)
        x = jnp.linspace(-6.0, 6.0, 25, dtype=dtype)
        y, back, autodiff, one, other = through(transform, x)
        assert y.dtype == dtype
        assert np.all(np.diff(y) > 0)
        # y is rounded, and the slope of x in log(y) multiplies that
        width = np.log(bounds["high"] / bounds["low"])
        slope = (2.0 + 2.0 * np.cosh(x)) / width
        assert np.all(np.abs(back - x) <= 100.0 * eps * slope)
        for value in (one, -other):  # autodiff of the sigmoid has an error of eps e^|x|
            assert np.all(np.abs(value - autodiff) <= eps * (100.0 + np.exp(np.abs(x))))

    def test_is_logarithmic(self, x64):
        transform = biject_to(log_interval(1e-10, 1e10))
        np.testing.assert_allclose([transform(0.0), transform(-1.0) * transform(1.0)], 1.0)
        np.testing.assert_allclose(log_interval(1e-10, 1e10).feasible_like(jnp.ones(3)), np.ones(3))

    @each_bounds
    def test_ends(self, bounds, dtype):
        constraint = log_interval(*bounds.values())
        transform = biject_to(constraint)
        x = jnp.asarray([-1e4, -100.0, -40.0, 40.0, 100.0, 1e4], dtype)
        y, back, _, log_slope, _ = through(transform, x)
        assert np.all(constraint(y))
        assert np.isfinite(back).all()
        assert np.isfinite(log_slope).all()
        assert np.isfinite(jax.jit(jax.grad(lambda x: through(transform, x)[3].sum()))(x)).all()
        ends = jnp.asarray([*bounds.values()], dtype)
        np.testing.assert_allclose(transform(jax.jit(lambda y: transform.inv(y))(ends)), ends, rtol=1e-4)

    def test_is_a_pytree_with_equality(self):
        constraint = log_interval(jnp.ones(3), 2.0 * jnp.ones(3))
        transform = biject_to(constraint)
        assert jax.tree.map(lambda leaf: leaf, constraint) == constraint
        assert jax.tree.map(lambda leaf: leaf, transform) == transform
        assert constraint != constraints.interval(jnp.ones(3), 2.0 * jnp.ones(3))
        assert constraint != log_interval(1.0, 3.0)
        assert transform.codomain == constraint
        assert transform.forward_shape((4, 1)) == transform.inverse_shape((4, 1)) == (4, 3)

    def test_nuts_draws_the_prior(self):
        # The whole way through biject_to and its Jacobian
        case = "smoothness narrow"
        kernel = NUTS(lambda: numpyro.sample("alpha", make(case)), max_tree_depth=4)
        mcmc = MCMC(kernel, num_warmup=200, num_samples=2000, progress_bar=False)
        mcmc.run(jax.random.key(0))
        log_draws = np.log(mcmc.get_samples()["alpha"])
        v, shares = quantiles(case)
        error = log_draws.std() / np.sqrt(numpyro.diagnostics.effective_sample_size(log_draws[None]))
        assert abs(log_draws.mean() - integrate.trapezoid(v, x=shares)) < 4.0 * error


SIZES = {"N > M": (20, 7), "N < M": (9, 24), "N = M": (12, 12)}
each_size = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
each_path = pytest.mark.parametrize("size", [(20, 7), (9, 24)], ids=["N > M", "N < M"])
each_design = pytest.mark.parametrize("size", [(20, 7), (9, 24), "orthonormal"], ids=["N > M", "N < M", "orthonormal"])


def problem(n, m, spread=2.0):
    """Phi, t, alpha and the noise variance."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, m)), rng.standard_normal(n), np.exp(spread * rng.standard_normal(m)), 0.3


def designed(size, spread=1.0):
    """The design and the matrix it stands for, t, alpha and the noise variance."""
    if size != "orthonormal":
        Phi, *rest = problem(*size, spread)
        return jnp.asarray(Phi), Phi, *rest
    _, *rest = problem(16, 6, spread)
    return Orthonormal(16), np.eye(16)[:, :6], *rest


def dense_log_prob(design, t, alpha, noise_variance):
    """What one would write without this package."""
    covariance = noise_variance * jnp.eye(len(t)) + (design / alpha) @ design.T
    return jax.scipy.stats.multivariate_normal.logpdf(t, jnp.zeros(len(t)), covariance)


def sparse_log_prob(design, t, alpha, noise_variance):
    return SparseNormal(design, alpha, noise_variance).log_prob(t)


ALL = (0, 1, 2, 3)
sparse_gradient = jax.jit(jax.value_and_grad(sparse_log_prob, ALL))
dense_gradient = jax.jit(jax.value_and_grad(dense_log_prob, ALL))
posterior = jax.jit(lambda d, t: (d.weights(t), d.leave_one_out(t)))


def check_normal(draws, mean, covariance):
    """Kolmogorov-Smirnov of the whitened draws, and a chi-square test of all their correlations together."""
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), np.asarray(draws - mean).T)
    assert stats.kstest(whitened.ravel(), "norm").pvalue > FALSE_ALARM
    pairs = (whitened @ whitened.T / np.sqrt(len(draws)))[np.triu_indices(len(whitened), 1)]
    assert stats.chi2.sf(np.sum(pairs**2), len(pairs)) > FALSE_ALARM


def splines():
    """Twenty linear splines at forty points, of which a sinc takes large weights that cancel; see `problem`."""
    x = np.linspace(-10, 10, 40)
    a, b = x[:, None], x[::2]
    low = np.minimum(a, b)
    Phi = 1 + a * b + a * b * low - (a + b) / 2 * low**2 + low**3 / 3
    t = np.sinc(x / np.pi) + 0.01 * np.random.default_rng(0).standard_normal(40)
    return Phi, t, np.full(20, 1e-4), 1e-4


class TestSparseNormal:
    @each_size
    def test_log_prob_and_gradient_equal_the_dense_formulas(self, size, x64):
        value, gradient = sparse_gradient(*problem(*size))
        np.testing.assert_allclose(value, reference.log_evidence(*problem(*size)), rtol=1e-10)
        for ours, theirs in zip(gradient, dense_gradient(*problem(*size))[1], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)

    @each_size
    def test_single_precision(self, size):
        Phi, t, alpha, noise_variance = problem(*size)
        value, gradient = sparse_gradient(Phi, t, alpha, noise_variance)
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, reference.log_evidence(Phi, t, alpha, noise_variance), rtol=1e-4)
        with jax.enable_x64(True):
            _, expected = sparse_gradient(Phi, t, alpha, noise_variance)
        for ours, theirs in zip(gradient, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-3)

    def test_single_precision_with_splines_warns_once_and_names_the_remedy(self):
        """At these alpha float32 gives a log density that is wrong by nats."""
        Phi, t, alpha, noise_variance = splines()
        with pytest.warns(UserWarning, match=r"float32 .* `with jax.enable_x64\(True\):`, or .*numpyro.enable_x64"):
            found = float(SparseNormal(Phi, alpha, noise_variance).log_prob(t))
        with jax.enable_x64(True):
            expected = float(SparseNormal(Phi, alpha, noise_variance).log_prob(t))
        assert not abs(found - expected) < 1
        SparseNormal(Phi, alpha, noise_variance)  # warned already, and warnings are errors

    def test_single_precision_of_a_compiled_likelihood(self):
        """A design known while compiling warns there, and one that is an argument cannot be judged."""
        Phi, t, alpha, noise_variance = splines()
        single = jnp.asarray(Phi)
        with pytest.warns(UserWarning, match="float32 has too few digits for columns as nearly dependent"):
            jax.jit(lambda a: SparseNormal(single, a, noise_variance).log_prob(t))(alpha)
        jax.jit(lambda Phi, a: SparseNormal(Phi, a, noise_variance).log_prob(t))(Phi, alpha)

    def test_single_precision_of_more_columns_than_rows(self):
        """The noise is lost where the columns' share of C exceeds it by the digits there are, about 1e7."""
        Phi, _, alpha, noise_variance = problem(5, 8)
        SparseNormal(Phi, alpha, noise_variance)
        with pytest.warns(UserWarning, match=r"variance of t that exceeds the noise \d+e\+\d+ times.*enable_x64"):
            SparseNormal(Phi, 1e-8 * alpha, noise_variance)

    @each_size
    def test_gradient_is_the_textbook_one(self, size, x64):
        Phi, t, alpha, noise_variance = problem(*size)
        _, (_, in_t, in_alpha, in_noise) = sparse_gradient(Phi, t, alpha, noise_variance)
        mu, Sigma = reference.weights_posterior(Phi, t, alpha, noise_variance)
        gamma, residual = 1.0 - alpha * np.diag(Sigma), t - Phi @ mu
        np.testing.assert_allclose(alpha * in_alpha, 0.5 * (1.0 - alpha * (mu**2 + np.diag(Sigma))), atol=1e-9)
        expected = -0.5 * (len(t) - residual @ residual / noise_variance - gamma.sum())
        np.testing.assert_allclose(noise_variance * in_noise, expected, rtol=1e-9)
        np.testing.assert_allclose(in_t, -residual / noise_variance, atol=1e-9)

    @each_path
    def test_each_argument_may_be_differentiated_alone_and_forwards(self, size, x64):
        arguments = problem(*size)
        together = sparse_gradient(*arguments)[1]
        alone = jax.jit(lambda *a: [jax.grad(sparse_log_prob, i)(*a) for i in ALL])(*arguments)
        for ours, theirs in zip(alone, together, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        direction = problem(*size, spread=0.1)
        _, change = jax.jit(lambda a, d: jax.jvp(sparse_log_prob, a, d))(arguments, direction)
        np.testing.assert_allclose(change, sum(np.sum(g * d) for g, d in zip(together, direction, strict=True)))

    @each_path
    def test_hessian_equals_autodiff_of_the_dense_formula(self, size, x64):
        Phi, t, alpha, noise_variance = problem(*size)

        def hessian(function):
            return jax.jit(jax.hessian(lambda v: function(Phi, t, jnp.exp(v), noise_variance)))(np.log(alpha))

        np.testing.assert_allclose(hessian(sparse_log_prob), hessian(dense_log_prob), atol=1e-8)

    @pytest.mark.parametrize("size", [(16, 16), (16, 6)], ids=["square", "tall"])
    def test_orthonormal_equals_the_matrix(self, size, dtype):
        Phi, t, alpha, noise_variance = problem(*size)
        Phi = np.linalg.qr(Phi)[0]
        design = Orthonormal(16)
        u = design.coordinates(Phi.T @ t, t)
        assert u.shape == t.shape
        tolerance = 1e-10 if dtype == "float64" else 1e-4
        value, gradient = jax.jit(jax.value_and_grad(sparse_log_prob, (2, 3)))(design, u, alpha, noise_variance)
        np.testing.assert_allclose(value, reference.log_evidence(Phi, t, alpha, noise_variance), rtol=tolerance)
        for ours, theirs in zip(gradient, sparse_gradient(Phi, t, alpha, noise_variance)[1][2:], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=100 * tolerance, atol=100 * tolerance)
        moments = SparseNormal(design, alpha, noise_variance).weights(u)
        for ours, theirs in zip(moments, reference.weights_posterior(Phi, t, alpha, noise_variance), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=tolerance)

    @each_size
    def test_weights_and_leave_one_out_equal_the_dense_formulas(self, size, dtype):
        Phi, t, alpha, noise_variance = arguments = problem(*size, spread=1.0)
        ours = posterior(SparseNormal(Phi, alpha, noise_variance), t)
        theirs = reference.weights_posterior(*arguments), reference.leave_one_out(*arguments)
        tolerance = 1e-9 if dtype == "float64" else 1e-3
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert one.dtype == dtype
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)

    @each_design
    def test_sampled_weights_follow_the_posterior(self, size, x64):
        design, Phi, t, alpha, noise_variance = designed(size)
        distribution = SparseNormal(design, alpha, noise_variance)
        draws = jax.jit(lambda key: distribution.sample_weights(key, t, (4000,)))(jax.random.key(0))
        check_normal(draws, *reference.weights_posterior(Phi, t, alpha, noise_variance))

    @each_design
    def test_sampled_t_follows_the_density(self, size, x64):
        design, Phi, _, alpha, noise_variance = designed(size)
        distribution = SparseNormal(design, alpha, noise_variance)
        C = reference.covariance_matrix(Phi, alpha, noise_variance)
        np.testing.assert_allclose(distribution.variance, np.diag(C), rtol=1e-12)
        assert np.all(distribution.mean == 0)
        check_normal(draw(distribution, jax.random.key(0), (4000,)), np.zeros(len(C)), C)

    @each_size
    def test_extreme_precisions_stay_finite(self, size, dtype):
        n, m = size
        random, t, _, _ = problem(n, m)
        kernel = np.exp(-(np.subtract.outer(np.linspace(-3, 3, n), np.linspace(-3, 3, m)) ** 2) / 4)
        rng = np.random.default_rng(1)
        extreme = [1e-10, 1.0, 1e10, np.inf] if dtype == "float64" else [1e-4, 1.0, 1e4, np.inf]
        choices = [np.full(m, value) for value in extreme] + [rng.choice(extreme, m) for _ in range(10)]
        for Phi in (random, random[:, np.arange(m) // 2], kernel):
            for alpha in choices:
                for noise_variance in (1e-4, 1.0):
                    result = sparse_gradient(Phi / np.linalg.norm(Phi, axis=0), t, alpha, noise_variance)
                    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result))

    @each_path
    def test_pruned_columns_do_not_count(self, size, x64):
        Phi, t, alpha, noise_variance = problem(*size)
        kept = Phi[:, ::2], t, alpha[::2], noise_variance
        for pruned, tolerance in ((np.inf, 1e-10), (1e12, 1e-8)):
            alpha[1::2] = pruned
            value, (_, _, in_alpha, _) = sparse_gradient(Phi, t, alpha, noise_variance)
            np.testing.assert_allclose(value, reference.log_evidence(*kept), rtol=tolerance)
            np.testing.assert_allclose(in_alpha[1::2], 0.0, atol=1e-15)
            (mu, _), _ = posterior(SparseNormal(Phi, alpha, noise_variance), t)
            np.testing.assert_allclose(mu[::2], reference.weights_posterior(*kept)[0], rtol=tolerance)
            np.testing.assert_allclose(mu[1::2], 0.0, atol=1e-8)

    def test_small_precisions_keep_their_digits(self, x64):
        # Independent columns: as alpha -> 0, log p - 1/2 sum log(alpha) tends to a constant
        Phi, t, _, _ = problem(20, 7)
        limit = [sparse_gradient(Phi, t, np.full(7, a), 1e-4)[0] - 3.5 * np.log(a) for a in (1e-12, 1e-15)]
        np.testing.assert_allclose(*limit, rtol=1e-9)

    @each_path
    def test_batches(self, size, x64):
        n, m = size
        Phi, t, alpha, _ = problem(*size)
        alpha, noise = alpha * np.array([1.0, 2.0, 3.0])[:, None], np.array([[0.2], [0.4]])
        distribution = SparseNormal(Phi, alpha, noise)
        assert (distribution.batch_shape, distribution.event_shape) == ((2, 3), (n,))
        one_by_one = [[sparse_gradient(Phi, t, a, v)[0] for a in alpha] for v in noise[:, 0]]
        np.testing.assert_allclose(log_prob(distribution, t), one_by_one, rtol=1e-10)
        key = jax.random.key(0)
        shapes = {
            (5, 2, 3, n): lambda: distribution.sample(key, (5,)),
            (5, 2, 3): lambda: distribution.log_prob(jnp.ones((5, 1, 3, n))),
            (4, 2, 3, m): lambda: distribution.sample_weights(key, t, (4,)),
            (2, 3, m, m): lambda: distribution.weights(t)[1],
            (2, 3, n): lambda: distribution.leave_one_out(t)[1],
            (7, n): lambda: SparseNormal(Phi, alpha[0], 0.2).expand([7]).sample(key),
            (7,): lambda: SparseNormal(Phi, alpha[0], 0.2).expand([7]).log_prob(t),
        }
        for shape, function in shapes.items():
            assert jax.eval_shape(function).shape == shape
        assert distribution.mean.shape == distribution.variance.shape == (2, 3, n)

    @each_design
    def test_jit_vmap_and_grad_compose(self, size, x64):
        design, _, t, alpha, noise_variance = designed(size)
        gradient = jax.jit(jax.grad(sparse_log_prob, (1, 2, 3)))
        batch = np.stack([alpha, 2.0 * alpha, 3.0 * alpha])
        together = jax.jit(jax.vmap(gradient, (None, None, 0, None)))(design, t, batch, noise_variance)
        apart = zip(*(gradient(design, t, a, noise_variance) for a in batch), strict=True)
        for ours, theirs in zip(together, apart, strict=True):
            np.testing.assert_allclose(ours, jnp.stack(theirs), rtol=1e-9, atol=1e-12)
        distribution = SparseNormal(design, alpha, noise_variance)
        again = jax.tree.map(lambda leaf: leaf, distribution)
        assert log_prob(again, t) == log_prob(distribution, t)
        assert again.event_shape == distribution.event_shape

    def test_a_kernel_width_can_be_learnt(self, x64):
        x = np.linspace(-3.0, 3.0, 15)

        def slope(function):
            def objective(width):
                return function(jnp.exp(-((x[:, None] - x) ** 2) / width**2), np.sin(x), np.ones(15), 0.1)

            return jax.jit(jax.grad(objective))(1.5)

        np.testing.assert_allclose(slope(sparse_log_prob), slope(dense_log_prob), rtol=1e-9)

    @pytest.mark.parametrize(
        ("build", "match"),
        [
            (lambda: SparseNormal(np.ones((3, 2)), np.ones(3), 1.0), r"alpha has shape \(3,\)"),
            (lambda: SparseNormal(np.ones((3, 2)), 1.0, 1.0), r"alpha has shape \(\)"),
            (lambda: SparseNormal(np.ones(3), np.ones(3), 1.0), r"design has shape \(3,\)"),
            (lambda: SparseNormal(Orthonormal(3), np.ones(4), 1.0), r"alpha has shape \(4,\)"),
            (lambda: SparseNormal(np.ones((3, 2)), -np.ones(2), 1.0, validate_args=True), "invalid alpha"),
            (lambda: SparseNormal(np.ones((3, 2)), np.ones(2), 0.0, validate_args=True), "invalid noise_variance"),
            (lambda: SparseNormal(Orthonormal(3), np.ones(2), 1.0).leave_one_out(np.ones(3)), "give the matrix"),
            (lambda: Orthonormal(3).coordinates(np.ones(2), np.ones(4)), "t has 4"),
            (lambda: Orthonormal(3).coordinates(np.ones(4), np.ones(3)), "Phi't 4"),
        ],
    )
    def test_invalid_arguments(self, build, match):
        with pytest.raises(ValueError, match=match):
            build()

    def test_nuts_runs_in_an_ordinary_model(self, x64):
        Phi, t, z, _ = problem(9, 24)

        def model(Phi, t, z):
            noise_variance = numpyro.sample("noise_variance", dist.LogNormal(0.0, 1.0))
            alpha = numpyro.sample("alpha", SmoothnessPrecision(1.5, noise_variance).expand([24]).to_event(1))
            numpyro.sample("t", SparseNormal(Phi, alpha, noise_variance), obs=t)
            numpyro.sample("z", SparseNormal(Orthonormal(24), alpha, noise_variance), obs=z)

        mcmc = MCMC(NUTS(model, max_tree_depth=6), num_warmup=50, num_samples=20, progress_bar=False)
        mcmc.run(
            jax.random.key(0), jnp.asarray(Phi), jnp.asarray(t), jnp.asarray(z), extra_fields=("potential_energy",)
        )
        for values in [*mcmc.get_samples().values(), mcmc.get_extra_fields()["potential_energy"]]:
            assert np.isfinite(values).all()
        assert len(np.unique(mcmc.get_samples()["noise_variance"])) > 10

    def test_predictive_draws_from_the_prior(self, x64):
        def model():
            alpha = numpyro.sample("alpha", PowerPrecision(-1.0, 0.1, 10.0).expand([24]).to_event(1))
            numpyro.sample("t", SparseNormal(problem(9, 24)[0], alpha, 0.3))

        draws = Predictive(model, num_samples=3)(jax.random.key(0))
        assert draws["t"].shape == (3, 9)
        assert np.isfinite(draws["t"]).all()
