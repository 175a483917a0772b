"""The linear algebra of one model: every move equals the dense formulas, and exact ones where those fail."""

from decimal import Decimal, localcontext
from math import pi

import numpy as np
import pytest
import reference

from sbl_ppl.evidence import ActiveModel, SingularModelError

EPS = np.finfo(float).eps


def unit(matrix):
    return matrix / np.linalg.norm(matrix, axis=0)


def gaussian_columns(n=40, m=60):
    return unit(np.random.default_rng(1).standard_normal((n, m)))


def gaussian_kernel(n=40):
    x = np.linspace(-10.0, 10.0, n)
    return unit(np.exp(-(np.subtract.outer(x, x) ** 2) / 4.0))


def linear_spline(x):
    least, product = np.minimum.outer(x, x), np.multiply.outer(x, x)
    return unit(1 + product + product * least - np.add.outer(x, x) * least**2 / 2 + least**3 / 3)


def thin_plate(x):
    distance = np.abs(np.subtract.outer(x, x))
    return unit(distance**2 * np.log(np.where(distance > 0, distance, 1.0)))


def haar_and_thin_plate(n=64):
    return np.hstack([reference.wavelet_matrix("haar", n, 6), thin_plate(np.linspace(-10.0, 10.0, n) / 3.0)])


def duplicated_columns(n=30):
    return np.hstack([unit(np.random.default_rng(2).standard_normal((n, 4)))] * 2)


DICTIONARIES = {"random": gaussian_columns, "kernel": gaussian_kernel, "union": haar_and_thin_plate}
# Neighbours among them leave less than 1e-6 of a column, so that the model is `delicate`.
NEARLY_DEPENDENT = {
    "linear spline": lambda: linear_spline(np.linspace(-10.0, 10.0, 30)),
    "thin plate": lambda: thin_plate(np.linspace(-10.0, 10.0, 30) / 3.0),
    "duplicated": duplicated_columns,
}
each_dictionary = pytest.mark.parametrize("Phi", [make() for make in DICTIONARIES.values()], ids=DICTIONARIES)
each_nearly_dependent = pytest.mark.parametrize(
    "Phi", [make() for make in NEARLY_DEPENDENT.values()], ids=NEARLY_DEPENDENT
)


def targets(Phi, seed=0):
    """Some columns and noise, of unit spread."""
    rng = np.random.default_rng(seed)
    t = Phi[:, ::7] @ rng.standard_normal(Phi[:, ::7].shape[1]) + 0.1 * rng.standard_normal(len(Phi))
    return t / np.std(t)


def make_model(Phi, t, beta=10.0):
    return ActiveModel(t, Phi.T @ t, lambda indices: Phi.T[indices], lambda rows: rows @ Phi, beta)


def all_alpha(model):
    alpha = np.full(model.m, np.inf)
    alpha[model.index] = model.alpha
    return alpha


def assert_equal(actual, desired, rtol, name):
    """Equal relative to the largest entry: small entries are differences of large ones."""
    assert np.shape(actual) == np.shape(desired), name
    error = np.max(np.abs(actual - desired), initial=0.0)
    assert error <= rtol * np.max(np.abs(desired), initial=1e-300), f"{name}: error {error:.2g}"


def assert_equals_dense(model, Phi, t, rtol=1e-9):
    """The dense formulas go through C, of condition below 1e6 for the α and β of these tests: good to 1e-10."""
    alpha, sigma2 = all_alpha(model), 1.0 / model.beta
    S, Q = reference.big_S_Q(Phi, t, alpha, sigma2)
    order = np.argsort(model.index)
    mu, Sigma = reference.weights_posterior(Phi, t, alpha, sigma2)
    assert_equal(model.S, S, rtol, "S")
    assert_equal(model.Q, Q, rtol, "Q")
    assert_equal(model.mu[order], mu, rtol, "mu")
    assert_equal(model.Sigma[np.ix_(order, order)], Sigma, rtol, "Sigma")
    # the evidence is a sum of N terms of order one, which may cancel
    assert model.log_evidence == pytest.approx(reference.log_evidence(Phi, t, alpha, sigma2), abs=rtol * len(t))
    s, q = reference.small_s_q(Phi[:, model.index], t, model.alpha, sigma2)
    own_s, own_q2 = model.statistics()
    assert_equal(own_s, s, rtol, "s")
    assert_equal(own_q2, q**2, rtol, "q2")


def random_move(model, rng):
    """One move of any kind, with moderate precisions; returns its name."""
    kinds = ["add", "include", "noise"] + ["delete", "reestimate", "forget"] * (model.size > 2)
    kind = str(rng.choice(kinds))
    outside = rng.permutation(np.setdiff1d(np.arange(model.m), model.index))
    place = int(rng.integers(max(model.size, 1)))
    alpha = 10.0 ** rng.uniform(-2, 2, size=3)
    if kind == "add":
        model.add(int(outside[0]), float(alpha[0]))
    elif kind == "delete":
        model.delete(place)
    elif kind == "reestimate":
        model.reestimate(place, float(alpha[0]))
    else:
        if kind == "include":
            model.include(outside[:3], alpha)
        elif kind == "forget":
            model.forget(np.sort(rng.choice(model.size, 2, replace=False)))
        else:
            model.beta = float(10.0 ** rng.uniform(0, 2))
        model.refactor()
    return kind


@each_dictionary
@pytest.mark.parametrize("seed", range(3))
def test_every_move_equals_the_dense_formulas(Phi, seed):
    rng, t = np.random.default_rng(seed), targets(Phi)
    model = make_model(Phi, t)
    assert_equals_dense(model, Phi, t)
    kinds = set()
    for _ in range(60):
        kinds.add(random_move(model, rng))
        assert_equals_dense(model, Phi, t)
    assert kinds == {"add", "delete", "reestimate", "noise", "include", "forget"}


@each_dictionary
def test_drift_of_single_moves_stays_at_rounding(Phi):
    """200 updates without a refactorisation, as many as a search makes between two of them."""
    rng, t = np.random.default_rng(3), targets(Phi)
    model = make_model(Phi, t)
    for _ in range(200):
        if model.size < 3 or (model.size < 20 and rng.random() < 0.5):
            outside = np.setdiff1d(np.arange(model.m), model.index)
            model.add(int(rng.choice(outside)), float(10.0 ** rng.uniform(-2, 2)))
        elif rng.random() < 0.5:
            model.delete(int(rng.integers(model.size)))
        else:
            model.reestimate(int(rng.integers(model.size)), float(10.0 ** rng.uniform(-2, 2)))
    assert_equals_dense(model, Phi, t)


def test_deleted_column_returns_from_its_kept_products():
    Phi = gaussian_columns()
    t, calls = targets(Phi), []

    def products(rows):
        calls.append(len(rows))
        return rows @ Phi

    model = ActiveModel(t, Phi.T @ t, lambda indices: Phi.T[indices], products, 10.0)
    for i in (3, 9, 27):
        model.add(i, 1.0)
    model.delete(1)
    model.add(9, 2.0)
    assert calls == [1, 1, 1]  # Φᵀφ of column 9 was computed once
    assert list(model.index) == [3, 27, 9]
    assert_equals_dense(model, Phi, t)


@each_dictionary
def test_dropping_waits_with_S_and_Q_for_refresh(Phi):
    t = targets(Phi)
    model = make_model(Phi, t)
    model.include(np.array([1, 8, 15, 22]), np.array([0.1, 1.0, 3.0, 10.0]))
    model.refactor()
    model.drop(2)
    alpha = all_alpha(model)
    assert np.isinf(alpha[15])
    assert model.log_evidence == pytest.approx(reference.log_evidence(Phi, t, alpha, 0.1), abs=1e-9 * len(t))
    model.condense()
    model.refresh()
    assert_equals_dense(model, Phi, t)


@each_dictionary
def test_factorise_tries_without_moving(Phi):
    t = targets(Phi)
    model = make_model(Phi, t)
    model.include(np.array([2, 5, 30]), np.array([0.5, 1.0, 2.0]))
    model.refactor()
    tried = model.factorise(np.array([3.0, 0.2, 7.0]), 25.0)
    assert_equals_dense(model, Phi, t)
    model.take(np.array([3.0, 0.2, 7.0]), 25.0, tried)
    model.refresh()
    assert_equals_dense(model, Phi, t)


@each_dictionary
def test_derivatives_equal_finite_differences(Phi):
    t = targets(Phi)
    model = make_model(Phi, t, beta=5.0)
    index = np.array([2, 11, 20, 33])
    model.include(index, np.array([0.3, 1.0, 5.0, 20.0]))
    model.refactor()
    point = np.log(np.append(model.alpha, model.beta))

    def evidence(point):
        return reference.log_evidence(Phi[:, index], t, np.exp(point[:-1]), np.exp(-point[-1]))

    gradient, hessian = model.derivatives()
    # fourth order with steps 1e-3 and 5e-3, derivatives up to N: errors near 1e-11 and 1e-8
    np.testing.assert_allclose(gradient, reference.finite_difference(evidence, point), atol=1e-10 * len(t))
    np.testing.assert_allclose(hessian, reference.finite_difference_hessian(evidence, point), atol=1e-7 * len(t))
    np.testing.assert_allclose(hessian, hessian.T, rtol=10 * EPS)


def test_derivatives_of_the_empty_model_are_those_of_the_noise():
    t = targets(gaussian_columns())
    gradient, hessian = make_model(gaussian_columns(), t, beta=2.0).derivatives()
    assert gradient == pytest.approx([0.5 * (len(t) - 2.0 * t @ t)])
    assert hessian == pytest.approx(np.array([[-t @ t]]))


# Nearly dependent columns: the dense formulas in double precision lose what the QR factorisation keeps, so compare with
# sixty digits. What is attainable follows from perturbing the data by EPS. With κ the condition of the stacked columns,
# QR (a delicate model) changes Sigma by κ EPS, Cholesky (any other) by κ² EPS. The means solve a least squares problem,
# with another κ² EPS ρ where ρ is its residual beside its fit (Wedin). The evidence is stationary in the means, so that
# they do not enter.


def exact_posterior(Phi, t, alpha, noise_variance):
    """Sigma, mu and log evidence of the columns of Phi with sixty digits: exact, beside a condition below 1e16."""
    with localcontext(prec=60):
        columns = [[Decimal(value) for value in column] for column in Phi.T.tolist()]
        target, sigma2 = [Decimal(float(value)) for value in t], Decimal(float(noise_variance))
        precision = [Decimal(float(value)) for value in alpha]
        k = len(columns)

        def dot(a, b):
            return sum((x * y for x, y in zip(a, b, strict=True)), Decimal(0))

        rows = [[dot(columns[i], columns[j]) / sigma2 for j in range(k)] for i in range(k)]
        for i in range(k):  # [A + K/sigma² | 1]
            rows[i][i] += precision[i]
            rows[i] += [Decimal(int(i == j)) for j in range(k)]
        log_determinant = Decimal(0)
        for i in range(k):  # Gauss-Jordan; the matrix is positive definite, so no pivot is zero
            pivot = rows[i][i]
            log_determinant += (pivot / precision[i]).ln()
            rows[i] = [value / pivot for value in rows[i]]
            for j in set(range(k)) - {i}:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
        Sigma = [row[k:] for row in rows]
        projected = [dot(column, target) / sigma2 for column in columns]
        mu = [dot(row, projected) for row in Sigma]
        quadratic = dot(target, target) / sigma2 - dot(projected, mu)
        evidence = -(len(target) * (2 * Decimal(pi) * sigma2).ln() + log_determinant + quadratic) / 2
    return np.array(Sigma, dtype=float).reshape(k, k), np.array(mu, dtype=float), float(evidence)


def stacked_condition(Phi, alpha, beta):
    return np.linalg.cond(np.vstack([np.sqrt(beta) * Phi, np.diag(np.sqrt(alpha))]))


def assert_equals_exact(model, Phi, t):
    Phi, beta = Phi[:, model.index], model.beta
    Sigma, mu, evidence = exact_posterior(Phi, t, model.alpha, 1.0 / beta)
    condition, rounding = stacked_condition(Phi, model.alpha, beta), 10 * len(t) * EPS
    rtol = rounding * (condition if model.delicate else condition**2)
    misfit = beta * np.sum((t - Phi @ mu) ** 2) + mu @ (model.alpha * mu)
    mean_rtol = rtol + rounding * condition**2 * np.sqrt(misfit / beta) / np.linalg.norm(mu)
    assert_equal(model.Sigma, Sigma, rtol, "Sigma")
    assert_equal(model.mu, mu, mean_rtol, "mu")
    assert model.log_evidence == pytest.approx(evidence, abs=rtol * len(mu) + rounding * misfit)
    s, q2 = model.statistics()
    np.testing.assert_allclose((s + model.alpha) * Sigma.diagonal(), 1.0, rtol=rtol)
    assert_equal(np.sqrt(q2), np.abs(mu) / Sigma.diagonal(), mean_rtol, "q")


@each_nearly_dependent
@pytest.mark.parametrize("alpha", [1e-3, 1e-6, 1e-9], ids="alpha={:g}".format)
def test_nearly_dependent_columns_keep_their_digits(Phi, alpha):
    t = targets(Phi)
    model = make_model(Phi, t, beta=100.0)
    for i in range(8):
        model.scrutinise(i)  # as the search does before it adds a column
        model.add(i, alpha)
        assert_equals_exact(model, Phi, t)
    for place, new in ((0, 3 * alpha), (7, alpha / 3), (3, 1.0)):
        model.reestimate(place, new)
        assert_equals_exact(model, Phi, t)
    for place in (5, 0, 2):
        model.delete(place)
        assert_equals_exact(model, Phi, t)
    model.beta = 1e4
    model.refactor()
    assert_equals_exact(model, Phi, t)


@each_nearly_dependent
@pytest.mark.parametrize("alpha", [1e-3, 1e-6, 1e-9, 1e-12], ids="alpha={:g}".format)
def test_refactorisation_of_nearly_dependent_columns_is_accurate(Phi, alpha):
    t = targets(Phi)
    model = make_model(Phi, t, beta=100.0)
    model.include(np.arange(8), np.full(8, alpha))
    model.refactor()
    assert_equals_exact(model, Phi, t)


@pytest.mark.parametrize("seed", [0, 10])
def test_evidence_of_many_nearly_dependent_columns(seed):
    """Weights of 1e6 that cancel: the evidence is stationary in them, and keeps all digits of its determinant."""
    rng = np.random.default_rng(seed)
    Phi, t = thin_plate(np.sort(rng.uniform(-10.0, 10.0, 64)) / 3.0), rng.standard_normal(64)
    model = make_model(Phi, t, beta=1e4)
    model.include(np.arange(64), np.ones(64))
    model.condense()
    for _ in range(30):  # T01 eq. 43: precisions as an EM search meets them, from 1e-10 to 1e2
        model.alpha = np.maximum(1.0 / (model.mu**2 + model.Sigma.diagonal()), 1e-10)
        model.condense()
    _, mu, evidence = exact_posterior(Phi, t, model.alpha, 1.0 / model.beta)
    condition = stacked_condition(Phi, model.alpha, model.beta)
    misfit = model.beta * np.sum((t - Phi @ mu) ** 2) + mu @ (model.alpha * mu)
    assert model.delicate
    assert model.log_evidence == pytest.approx(evidence, abs=10 * EPS * (condition * 64 + misfit), rel=0)


@pytest.mark.parametrize("name", ["linear spline", "duplicated"])
def test_delicate_models_are_recognised(name):
    Phi = NEARLY_DEPENDENT[name]()
    model = make_model(Phi, targets(Phi), beta=100.0)
    model.include(np.arange(8), np.full(8, 1e-9))
    model.refactor()
    assert model.delicate
    model.forget(np.arange(1, 8))
    model.refactor()
    assert not model.delicate


@each_nearly_dependent
@pytest.mark.parametrize("alpha", [1e-3, 1e-6, 1e-9], ids="alpha={:g}".format)
def test_scrutiny_of_a_nearly_dependent_column_equals_exact(Phi, alpha):
    """S_i = 1/Sigma_ii - α and Q_i = μ_i/Sigma_ii of the model that has column i too, with any α."""
    t, beta = targets(Phi), 100.0
    model = make_model(Phi, t, beta)
    model.include(np.arange(5), np.full(5, alpha))
    model.refactor()
    for i in (5, 6, 7):
        joint, precision = Phi[:, [*range(5), i]], np.full(6, alpha)
        Sigma, mu, _ = exact_posterior(joint, t, precision, 1.0 / beta)
        condition, rounding = stacked_condition(joint, precision, beta), 10 * len(t) * EPS
        model.scrutinise(i)
        # The difference φ - Φv has length of at least 1/κ and is rounded by EPS; v itself enters squared.
        assert model.S[i] + alpha == pytest.approx(1.0 / Sigma[-1, -1], rel=rounding * condition, abs=0.0)
        spread = beta * np.linalg.norm(t) * (condition if model.delicate else condition**2)
        assert model.Q[i] == pytest.approx(mu[-1] / Sigma[-1, -1], abs=rounding * spread)


@each_dictionary
def test_scrutiny_equals_dense(Phi):
    t = targets(Phi)
    model = make_model(Phi, t)
    for i in (1, 4, 9):
        model.add(i, 0.5)
    for i in range(10, Phi.shape[1], 7):
        model.S[i] = model.Q[i] = np.nan
        model.scrutinise(i)
    assert_equals_dense(model, Phi, t)


@pytest.mark.parametrize("copies", [2, 3])
def test_exactly_dependent_columns_with_tiny_alpha_are_refused(copies):
    Phi = np.repeat(gaussian_columns()[:, :1], copies, axis=1)
    t = targets(gaussian_columns())
    model = make_model(Phi, t, beta=1.0)
    model.include(np.arange(copies), np.full(copies, 1e-30))
    with pytest.raises(SingularModelError, match="linearly dependent"):
        model.refactor()


def test_more_active_columns_than_rows():
    Phi = gaussian_columns(n=10, m=30)
    t = targets(Phi)
    model = make_model(Phi, t)
    model.include(np.arange(30), np.full(30, 1.0))
    model.refactor()
    assert_equals_dense(model, Phi, t)
    for i in range(12):
        model.delete(i)
    assert_equals_dense(model, Phi, t)
