"""The reference formulas themselves: against SciPy, the exact examples of the papers' errata, and one another."""

import numpy as np
import pytest
import reference as ref
from scipy import special, stats


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((9, 6)), rng.standard_normal(9)
    return Phi, t, np.array([0.3, np.inf, 2.0, 0.05, np.inf, 50.0]), 0.2


# At alpha = 0.05 and σ² = 0.2 the condition number of C is about 1e3, so 1e-12 is what solving with it leaves.


def test_log_evidence_is_scipys(problem):
    C = ref.covariance_matrix(problem[0], problem[2], problem[3])
    expected = stats.multivariate_normal(cov=C).logpdf(problem[1])
    assert ref.log_evidence(*problem) == pytest.approx(expected, rel=1e-12)


def test_leaving_a_column_out_is_the_formula(problem):
    (S, Q), (s, q) = ref.big_S_Q(*problem), ref.small_s_q(*problem)
    shrink = 1.0 - S / problem[2]  # as small as 0.01 where alpha is small against s
    np.testing.assert_allclose(s, S / shrink, rtol=1e-9)
    np.testing.assert_allclose(q, Q / shrink, rtol=1e-9)


@pytest.mark.parametrize("m", range(6))
def test_one_column_adds_its_contribution(problem, m):
    Phi, t, alpha, noise_variance = problem
    s, q = ref.small_s_q(*problem)
    without = np.where(np.arange(6) == m, np.inf, alpha)
    gain = ref.log_evidence(*problem) - ref.log_evidence(Phi, t, without, noise_variance)
    assert gain == pytest.approx(ref.component_log_contribution(alpha[m], s[m], q[m] ** 2), abs=1e-11)


def test_gradient_is_that_of_the_weights(problem):
    """∂L/∂log α = ½[1 - α(μ² + Σ)]."""
    Phi, t, alpha, noise_variance = problem
    Phi, alpha = Phi[:, np.isfinite(alpha)], alpha[np.isfinite(alpha)]
    mu, Sigma = ref.weights_posterior(*problem)
    gradient = ref.finite_difference(lambda v: ref.log_evidence(Phi, t, np.exp(v), noise_variance), np.log(alpha))
    np.testing.assert_allclose(gradient, 0.5 * (1 - alpha * (mu**2 + np.diag(Sigma))), atol=1e-10)


def test_leave_one_out_is_that_of_the_inverse(problem):
    t = problem[1]
    inverse = np.linalg.inv(ref.covariance_matrix(problem[0], problem[2], problem[3]))
    mean, variance = ref.leave_one_out(*problem)
    np.testing.assert_allclose(variance, 1 / np.diag(inverse), rtol=1e-10)
    np.testing.assert_allclose(mean, t - inverse @ t / np.diag(inverse), rtol=1e-9)


def test_exact_normal_is_the_dense_one(problem):
    Phi, t, alpha, _ = problem
    exact = ref.ExactNormal(*problem)
    assert float(exact.log_evidence()) == pytest.approx(ref.log_evidence(*problem), rel=1e-12)
    assert float(exact.log_evidence(0.7)) == pytest.approx(ref.log_evidence(Phi, t, alpha, 0.7), rel=1e-12)
    s, q = ref.small_s_q(*problem)
    np.testing.assert_allclose(exact.small_s_q2(), (s, q**2), rtol=1e-9)
    mean, Sigma = ref.weights_posterior(*problem)
    np.testing.assert_allclose(exact.weights_posterior()[0], mean, rtol=1e-10)
    np.testing.assert_allclose(exact.weights_posterior()[1], Sigma, rtol=1e-10, atol=1e-14)
    kept = Phi[:, np.isfinite(alpha)]
    np.testing.assert_allclose(exact.predict(Phi), (kept @ mean, np.diag(kept @ Sigma @ kept.T)), rtol=1e-10)


def test_intercept_is_a_constant_column_of_flat_prior(problem):
    """Its α = 1e-40 here; the density of the contrasts is that of t divided by that of the mean, of variance 1/α."""
    Phi, t, alpha, noise_variance = problem
    exact = ref.ExactNormal(*problem, intercept=True)
    wide = np.hstack([Phi, np.ones((9, 1))])
    proper = ref.ExactNormal(wide, t, np.append(alpha, 1e-40), noise_variance)
    np.testing.assert_allclose(exact.predict(Phi), proper.predict(wide), rtol=1e-12)
    np.testing.assert_allclose(exact.weights_posterior()[1], proper.weights_posterior()[1][:-1, :-1], rtol=1e-12)
    log_mean = 0.5 * np.log(1e-40 / (2 * np.pi * 9))  # of the coefficient sqrt(9) mean(t)
    assert float(exact.log_evidence()) == pytest.approx(float(proper.log_evidence()) - log_mean, rel=1e-12)


def test_empty_model(problem):
    Phi, t, alpha, noise_variance = problem
    empty = (Phi, t, np.full_like(alpha, np.inf), noise_variance)
    mu, Sigma = ref.weights_posterior(*empty)
    assert (mu.shape, Sigma.shape) == ((0,), (0, 0))
    mean, variance = ref.leave_one_out(*empty)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_array_equal(variance, noise_variance)


def test_saddle_of_ft02():
    """FT02 (docs/errata.md): every single-α maximum holds, and the Hessian has a positive eigenvalue."""
    Phi = np.array([[np.sqrt(2), -np.sqrt(2)], [np.sqrt(1 / 8), np.sqrt(1 / 8)]])
    t, point = np.array([0.0, 2.5]), [1.0, 1.0]

    def objective(alpha):
        return ref.log_evidence(Phi, t, alpha, 1.0)

    np.testing.assert_allclose(ref.finite_difference(objective, point), 0, atol=1e-10)
    hessian = ref.finite_difference_hessian(objective, point)
    np.testing.assert_allclose(hessian, [[-1 / 8, 39 / 200], [39 / 200, -1 / 8]], atol=1e-7)


def test_brute_force_finds_the_flat_maximum():
    alpha, value = ref.brute_force_maximiser(lambda a: ref.component_log_contribution(a, 2.0, 9.0), 1e-10, 1e10)
    assert alpha == pytest.approx(4 / 7, rel=1e-7)  # s²/(q² - s), to the root of rounding
    assert value == pytest.approx(0.5 * (4.5 - 1 - np.log(4.5)), rel=1e-13)


def test_brute_force_prefers_the_end_to_a_lower_root():
    """docs/errata.md: β=1, s=.05, q²=.2, c=1 has a local maximum at .0177, of value -0.176 relative to α = inf."""

    def objective(alpha):
        return ref.component_log_contribution(alpha, 0.05, 0.2) - 1.0 / (1.0 + alpha)

    alpha, value = ref.brute_force_maximiser(objective, 1e-3, 0.1)
    assert alpha == pytest.approx(0.0177, abs=5e-5)
    assert value == pytest.approx(-0.176, abs=5e-4)
    assert ref.brute_force_maximiser(objective, 1e-10, 1e10)[0] == 1e10


def smoothness_integral(low, high, noise_variance=0.1, c=3.0):
    """SE07 eq. (17) with E1, where σ² high is large enough for the difference to keep its digits."""
    u = 1 + noise_variance * np.array([low, high])
    low_end, high_end = (u * np.exp(-c / u) - c * special.exp1(c / u)) / noise_variance
    return high_end - low_end


def gamma_integral(low, high):
    gamma = stats.gamma(2.0, scale=1 / 3.0)
    return (gamma.cdf(high) - gamma.cdf(low)) / 3.0**2


@pytest.mark.parametrize(
    ("kind", "params", "integral"),
    [
        ("flat", {}, lambda low, high: high - low),
        ("flat", {"measure": "log"}, lambda low, high: np.log(high / low)),
        ("smoothness", {"c": 3.0}, smoothness_integral),
        ("gamma", {"a": 2.0, "b": 3.0}, gamma_integral),
        ("power", {"zeta": -1.0}, lambda low, high: np.log(high / low)),
        ("power", {"zeta": -0.3}, lambda low, high: (high**0.7 - low**0.7) / 0.7),
    ],
    ids=["flat", "flat, log", "smoothness", "gamma", "power -1", "power -0.3"],
)
@pytest.mark.parametrize(("low", "high"), [(1e-10, 1e10), (0.5, 20.0)], ids=["wide", "narrow"])
def test_normalisers(kind, params, integral, low, high):
    log_z = ref.log_prior_normaliser(kind, 0.1, 1.0, low, high, **params)
    assert log_z == pytest.approx(np.log(integral(low, high)), abs=1e-11)


@pytest.mark.parametrize("measure", ["alpha", "log"])
def test_coordinates_and_broadcasting_of_the_prior(measure):
    alpha, norm2 = np.array([0.1, 1.0, 30.0, 1e5]), np.array([1.0, 2.0, 3.0, 4.0])
    arguments = {"low": 1e-2, "high": 1e3, "measure": measure, "c": 2.0}
    per_alpha = ref.log_prior("smoothness", alpha, 0.3, norm2, **arguments)
    per_log = ref.log_prior("smoothness", alpha, 0.3, norm2, coordinate="log", **arguments)
    np.testing.assert_allclose((per_log - np.log(alpha))[:3], per_alpha[:3], rtol=1e-14)
    assert per_alpha[3] == per_log[3] == -np.inf
    alone = [ref.log_prior("smoothness", a, 0.3, n2, **arguments) for a, n2 in zip(alpha, norm2, strict=True)]
    np.testing.assert_array_equal(per_alpha, alone)


def test_inverse_gamma_is_scipys():
    x = np.array([0.1, 1.0, 7.0])
    np.testing.assert_allclose(ref.log_inverse_gamma(x, 2.5, 0.7), stats.invgamma(2.5, scale=0.7).logpdf(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "n", "level"), [("haar", 16, 4), ("db4", 8, 3), ("db4", 32, 2), ("sym8", 128, 3)], ids=str
)
def test_wavelet_matrix_is_orthonormal(name, n, level):
    W = ref.wavelet_matrix(name, n, level)
    np.testing.assert_allclose(W.T @ W, np.eye(n), atol=1e-9)  # PyWavelets tabulates its filters to about 1e-11


def test_haar_matrix_of_four():
    r = np.sqrt(0.5)
    expected = [[0.5, 0.5, r, 0.0], [0.5, 0.5, -r, 0.0], [0.5, -0.5, 0.0, r], [0.5, -0.5, 0.0, -r]]
    np.testing.assert_allclose(ref.wavelet_matrix("haar", 4, 2), expected, atol=1e-15)
