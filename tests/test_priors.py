"""The five priors: densities against quadrature, the maximiser of one component against brute force, refusals."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import reference as ref
from scipy import integrate

import sbl_ppl as sbl

# id: class, its arguments, and the same density in words of the reference.
DENSITIES = {
    "flat": (sbl.Flat, {}, "flat", {}),
    "flat, log": (sbl.Flat, {"measure": "log"}, "flat", {"measure": "log"}),
    "jeffreys": (sbl.Jeffreys, {}, "flat", {"measure": "log"}),
    "smoothness 0": (sbl.Smoothness, {"c": 0.0}, "smoothness", {"c": 0.0, "measure": "log"}),
    "smoothness 3": (sbl.Smoothness, {"c": 3.0}, "smoothness", {"c": 3.0, "measure": "log"}),
    "smoothness 3, alpha": (sbl.Smoothness, {"c": 3.0, "measure": "alpha"}, "smoothness", {"c": 3.0}),
    "smoothness 1000": (sbl.Smoothness, {"c": 1e3}, "smoothness", {"c": 1e3, "measure": "log"}),
    "gamma, tipping": (sbl.Gamma, {}, "gamma", {"a": 1e-4, "b": 1e-4}),
    "gamma(2, 3)": (sbl.Gamma, {"a": 2.0, "b": 3.0}, "gamma", {"a": 2.0, "b": 3.0}),
    "gamma(0, 0.1)": (sbl.Gamma, {"a": 0.0, "b": 0.1}, "gamma", {"a": 0.0, "b": 0.1}),
    "power(-0.3)": (sbl.Power, {"zeta": -0.3}, "power", {"zeta": -0.3}),
    "power(-2.5)": (sbl.Power, {"zeta": -2.5}, "power", {"zeta": -2.5}),
}
BOUNDS = [(None, None), (0.01, 50.0), (10.0, 30.0), (1e3, 1e4)]


def density_cases(*skip):
    chosen = {name: case for name, case in DENSITIES.items() if name not in skip}
    return pytest.mark.parametrize(("cls", "arguments", "kind", "params"), chosen.values(), ids=chosen.keys())


@density_cases()
@pytest.mark.parametrize(("low", "high"), BOUNDS, ids=["default", "around one", "above", "far"])
def test_log_density_is_the_reference(cls, arguments, kind, params, low, high):
    prior = cls(**arguments, low=low, high=high)
    for noise_variance, norm2 in [(1e-12, 1.0), (0.3, 1.0), (0.3, 250.0), (1e4, 1e-3)]:
        bounds = (low or 1e-10 * norm2, high or 1e10 * norm2)
        alpha = np.geomspace(*bounds, 9)[1:-1]
        for coordinate in ("alpha", "log"):
            value = prior.log_density(alpha, noise_variance, norm2, coordinate=coordinate)
            expected = ref.log_prior(kind, alpha, noise_variance, norm2, *bounds, coordinate=coordinate, **params)
            # Both quadratures of log Z are good to about 1e-11; -b alpha reaches 1e9 and keeps 16 digits.
            np.testing.assert_allclose(value, expected, rtol=1e-15, atol=1e-9)


@density_cases("smoothness 1000")
@pytest.mark.parametrize("coordinate", ["alpha", "log"])
def test_density_integrates_to_one(cls, arguments, kind, params, coordinate):
    noise_variance, norm2, low, high = 0.2, 7.0, 1e-3, 1e4
    v = np.linspace(np.log(low) + 1e-12, np.log(high) - 1e-12, 8001)
    density = np.exp(
        cls(**arguments, low=low, high=high).log_density(np.exp(v), noise_variance, norm2, None, coordinate)
    )
    per_log = density * np.exp(v) if coordinate == "alpha" else density
    # Simpson's rule in log alpha with 500 points a nat: h⁴ is 2e-11, and e^(-b alpha) has derivatives up to 100.
    assert integrate.simpson(per_log, x=v) == pytest.approx(1.0, abs=1e-8)


@density_cases()
@pytest.mark.parametrize("coordinate", ["alpha", "log"])
def test_density_is_zero_outside_the_bounds(cls, arguments, kind, params, coordinate):
    prior = cls(**arguments, low=0.1, high=10.0)
    outside = prior.log_density([-1.0, 0.0, 0.0999, 10.001, 1e300, np.inf], coordinate=coordinate)
    np.testing.assert_array_equal(outside, -np.inf)
    assert np.isfinite(prior.log_density([0.1, 1.0, 10.0], coordinate=coordinate)).all()


@pytest.mark.parametrize("coordinate", ["alpha", "log"])
def test_log_density_takes_one_norm_per_component(coordinate):
    alpha, norm2 = np.array([0.3, 2.0, 40.0]), np.array([1.0, 9.0, 0.25])
    for prior in (sbl.Smoothness(2.0), sbl.Smoothness(2.0, normalize=False), sbl.Gamma(2.0, 3.0), sbl.Flat(high=50.0)):
        one_by_one = [prior.log_density(a, 0.5, n2, coordinate=coordinate) for a, n2 in zip(alpha, norm2, strict=True)]
        np.testing.assert_allclose(prior.log_density(alpha, 0.5, norm2, coordinate=coordinate), one_by_one, rtol=1e-13)


def test_smoothness_does_not_depend_on_the_units_of_a_column():
    alpha, k = np.geomspace(1e-3, 1e3, 7), 1234.5
    prior = sbl.Smoothness(2.0)
    np.testing.assert_allclose(
        prior.log_density(alpha * k, 0.3, k, coordinate="log"), prior.log_density(alpha, 0.3, 1.0, coordinate="log")
    )
    s, q2 = np.array([0.1, 1.0, 2.0]), np.array([0.05, 20.0, 31.0])
    best, gain = prior.maximise(s, q2, 0.3, 1.0)
    scaled, same = prior.maximise(s * k, q2 * k, 0.3, k)
    np.testing.assert_allclose(scaled, best * k, rtol=1e-9)
    np.testing.assert_allclose(same, gain, rtol=1e-12)


def test_raw_smoothness_is_the_papers():
    alpha, norm2 = np.geomspace(1e-3, 1e3, 7), 40.0
    value = sbl.Smoothness(2.0, normalize=False).log_density(alpha, 0.3, norm2)
    expected = ref.log_prior("smoothness", alpha, 0.3, 1.0, 1e-10 * norm2, 1e10 * norm2, c=2.0, measure="log")
    np.testing.assert_allclose(value, expected, atol=1e-9)


# The maximiser: prior, space, and in words of the reference its kind, parameters, and whether a pruned component is
# free (its value at infinity is 0) or is counted at `high`.
FREE, COUNTED = True, False
MAXIMISED = {
    "flat": (sbl.Flat(), None, "flat", {}, FREE),
    "jeffreys": (sbl.Jeffreys(), None, "flat", {"measure": "log"}, FREE),
    "power 0": (sbl.Power(0.0), None, "power", {"zeta": 0.0}, FREE),
    "power -1 in log": (sbl.Power(-1.0), "log", "power", {"zeta": -1.0}, FREE),
    "smoothness 0.3": (sbl.Smoothness(0.3), None, "smoothness", {"c": 0.3, "measure": "log"}, FREE),
    "smoothness AIC": (sbl.Smoothness("AIC", "alpha"), None, "smoothness", {"c": 1.0}, FREE),
    "smoothness 20": (sbl.Smoothness(20.0), None, "smoothness", {"c": 20.0, "measure": "log"}, FREE),
    "smoothness raw": (sbl.Smoothness(2.0, normalize=False), None, "raw", {"c": 2.0, "measure": "log"}, FREE),
    "power -0.3": (sbl.Power(-0.3), None, "power", {"zeta": -0.3}, COUNTED),
    "power -1.4 in log": (sbl.Power(-1.4), "log", "power", {"zeta": -1.4}, COUNTED),
    "gamma, tipping": (sbl.Gamma(), None, "gamma", {"a": 1e-4, "b": 1e-4}, COUNTED),
    "gamma(0, 0.1)": (sbl.Gamma(0.0, 0.1), None, "gamma", {"a": 0.0, "b": 0.1}, COUNTED),
    "gamma(2, 3)": (sbl.Gamma(2.0, 3.0), None, "gamma", {"a": 2.0, "b": 3.0}, COUNTED),
    "gamma(0.8, 3) in alpha": (sbl.Gamma(0.8, 3.0), "alpha", "gamma", {"a": 0.8, "b": 3.0}, COUNTED),
}
BETAS = [1e-4, 1.0, 1e5]


def search_table(seed, beta, norm2, c=0.0, count=16):
    """Random s and q²: s up to β‖φ‖², as in any model, and q²/s over decades and close to where a root appears."""
    rng = np.random.default_rng(seed)
    s = beta * norm2 * 10.0 ** -rng.uniform(0.0, 5.0, count)
    s[:2] = beta * norm2
    ratio = 10.0 ** rng.uniform(-1.0, 4.0, count)
    ratio[:5] = 1 + 2 * c + np.array([-1e-3, 1e-3, 1e-2, 1.0, 3.0])
    ratio[5] = 1.001
    return s, ratio * s


def brute_force(prior, space, kind, params, free, s, q2, noise_variance, norm2):
    """Best alpha (inf if pruned), its gain, and how far log alpha may be off."""
    low, high = prior.low or 1e-10 * norm2, prior.high or 1e10 * norm2
    kind, kappa_norm2 = ("smoothness", 1.0) if kind == "raw" else (kind, norm2)
    per_log = (space or prior.coordinate) == "log"

    def log_prior(alpha):
        value = ref.log_prior_unnormalised(kind, alpha, noise_variance, kappa_norm2, **params)
        return value + np.log(alpha) if per_log else value

    def objective(alpha):
        return ref.component_log_contribution(alpha, s, q2) + log_prior(alpha)

    best, value = ref.brute_force_maximiser(objective, low, high, num=2001)
    gain = value - (0.0 if free else log_prior(high))
    at_end = best >= high * (1 - 1e-9)  # there a component is kept only if it contributes more than 1e-6 nats
    if gain <= (1e-6 if at_end else 1e-14):  # log alpha, added and taken away again, leaves 4e-15 at 1e10
        return np.inf, 0.0, 0.0
    if best == low or at_end:
        return best, gain, 1e-9
    curvature = -ref.finite_difference_hessian(lambda v: objective(np.exp(v[0])), [np.log(best)])[0, 0]
    # A bounded search stops at 1.5e-8 |log alpha|, and sees no change of the value below the rounding of its terms.
    rounding = 1e-15 * (1 + abs(log_prior(best)) + q2 / s)
    return best, gain, 1e-7 * (1 + abs(np.log(best))) + np.sqrt(2 * rounding / curvature)


def check_maximiser(prior, space, kind, params, free, s, q2, noise_variance, norm2):
    alpha, gain = prior.maximise(s, q2, noise_variance, norm2, space=space)
    assert (np.isinf(alpha) == (gain == 0)).all()
    for i in range(len(s)):
        best, value, slack = brute_force(prior, space, kind, params, free, s[i], q2[i], noise_variance, norm2)
        assert np.isinf(alpha[i]) == np.isinf(best), (s[i], q2[i], alpha[i], best)
        # The maximum is flat, so its value is as good as the rounding of its terms, of size q²/s.
        assert gain[i] == pytest.approx(value, rel=1e-12, abs=1e-14 * (1 + q2[i] / s[i]))
        if np.isfinite(best):
            assert np.log(alpha[i]) == pytest.approx(np.log(best), abs=slack)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize(("prior", "space", "kind", "params", "free"), MAXIMISED.values(), ids=MAXIMISED.keys())
def test_maximiser_is_brute_force(prior, space, kind, params, free, beta):
    norm2 = 4.0
    s, q2 = search_table(0, beta, norm2, params.get("c", 0.0))
    check_maximiser(prior, space, kind, params, free, s, q2, 1.0 / beta, norm2)


@pytest.mark.parametrize(
    ("prior", "kind", "params", "free"),
    [
        (sbl.Flat(low=0.1, high=10.0), "flat", {}, FREE),
        (sbl.Smoothness(1.0, low=0.1, high=10.0), "smoothness", {"c": 1.0, "measure": "log"}, FREE),
        (sbl.Smoothness(1.0, normalize=False, low=0.1, high=10.0), "raw", {"c": 1.0, "measure": "log"}, FREE),
        (sbl.Gamma(1.0, 0.05, low=0.1, high=10.0), "gamma", {"a": 1.0, "b": 0.05}, COUNTED),
        (sbl.Power(-0.2, low=0.1, high=10.0), "power", {"zeta": -0.2}, COUNTED),
    ],
    ids=["flat", "smoothness", "smoothness raw", "gamma", "power"],
)
def test_maximiser_keeps_to_the_bounds(prior, kind, params, free):
    """Unbounded, these maxima lie below `low`, inside, and above `high`: clipped there, or pruned if worthless."""
    s = np.repeat([0.02, 1.0, 30.0, 400.0], 4)
    q2 = s * np.tile([0.3, 2.5, 6.0, 300.0], 4)
    check_maximiser(prior, None, kind, params, free, s, q2, 0.01, 4.0)
    alpha = prior.maximise(s, q2, 0.01, 4.0)[0]
    assert (alpha == 0.1).any()
    assert ((alpha > 0.1) & (alpha < 10.0)).any()
    assert (alpha == 10.0).any()
    assert np.isinf(alpha).any()


def test_gamma_with_two_maxima_takes_the_higher():
    """One maximum from the data near alpha = s, one from the prior near a/b = 1e6; the data win as q² grows."""
    prior, s = sbl.Gamma(1.0, 1e-6), np.ones(8)
    q2 = np.linspace(10.0, 80.0, 8)
    check_maximiser(prior, None, "gamma", {"a": 1.0, "b": 1e-6}, COUNTED, s, q2, 1.0, 1.0)
    alpha = prior.maximise(s, q2)[0]
    assert alpha[0] > 1e5
    assert alpha[-1] < 1.0


@pytest.mark.parametrize("measure", ["alpha", "log"])
@pytest.mark.parametrize(("c", "value"), [(0.0, 0.0), ("AIC", 1.0), ("BIC", np.log(128) / 2), ("RIC", np.log(128))])
def test_orthonormal_closed_form(c, value, measure):
    """With s = β and q = βz the cubic factors: alpha = β / (βz² - 1 - 2c), pruned if that is not positive."""
    beta = 3.7
    excess = np.array([-0.5, -1e-3, 1e-3, 0.1, 1.0, 50.0, 1e4])
    z2 = (1 + 2 * value + excess) / beta
    alpha, gain = sbl.Smoothness(c, measure).maximise(np.full(7, beta), beta**2 * z2, 1 / beta, n=128)
    keep = excess > 0
    np.testing.assert_array_equal(np.isfinite(alpha), keep)
    np.testing.assert_allclose(alpha[keep], beta / excess[keep], rtol=1e-11)  # βz² - 1 - 2c = 1e-3 keeps 13 digits
    np.testing.assert_allclose(gain[keep], 0.5 * (excess - np.log1p(excess))[keep], atol=1e-14, rtol=1e-10)


def test_root_of_negative_value_is_pruned():
    """docs/errata.md: β=1, s=.05, q²=.2, c=1 has a root at .0177, where the value is -0.176; a lower c keeps it."""
    alpha, gain = sbl.Smoothness(1.0).maximise(0.05, 0.2)
    assert (float(alpha), float(gain)) == (np.inf, 0.0)
    assert np.isfinite(sbl.Smoothness(0.5).maximise(0.05, 0.2)[0])


def test_flat_maximiser_is_tippings():
    alpha, gain = sbl.Flat().maximise([2.0, 2.0], [9.0, 1.9])
    np.testing.assert_allclose(alpha, [4.0 / 7.0, np.inf], rtol=1e-14)
    np.testing.assert_allclose(gain, [0.5 * (4.5 - 1 - np.log(4.5)), 0.0], rtol=1e-13)


@pytest.mark.parametrize(("prior", "space"), [case[:2] for case in MAXIMISED.values()], ids=MAXIMISED.keys())
def test_maximiser_takes_one_norm_per_component(prior, space):
    norm2, beta = np.array([0.3, 1.0, 5.0, 70.0]), 2.0
    s, q2 = 0.4 * beta * norm2, 9.0 * 0.4 * beta * norm2
    alpha, gain = prior.maximise(s, q2, 1 / beta, norm2, space=space)
    for i in range(4):
        one = prior.maximise(s[i], q2[i], 1 / beta, norm2[i], space=space)
        assert one[0].shape == one[1].shape == ()
        np.testing.assert_allclose((alpha[i], gain[i]), one, rtol=1e-10)


@pytest.mark.parametrize(("prior", "space"), [case[:2] for case in MAXIMISED.values()], ids=MAXIMISED.keys())
def test_search_units_are_a_change_of_units(prior, space):
    """With columns of norm 1 and t of spread 1, alpha, s and q² are the user's times scale2 / norm2, β times scale2."""
    prior = dataclasses.replace(prior, low=1e-3, high=1e5)
    beta, scale2, norm2 = 2.0, 25.0, np.geomspace(0.3, 70.0, 16)
    s, q2 = (norm2 * value for value in search_table(3, beta, 1.0, prior.bind(None).c))
    alpha, gain = prior.maximise(s, q2, 1 / beta, norm2, space=space)
    unit = scale2 / norm2
    inner, same = prior.bind(None, norm2, scale2, space).maximise(s * unit, q2 * unit, beta * scale2)
    np.testing.assert_allclose(inner, alpha * unit, rtol=1e-9)
    np.testing.assert_allclose(same, gain, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("bounds", [{}, {"high": 3.0}, {"low": 0.5, "high": 3.0}], ids=["default", "high", "narrow"])
@pytest.mark.parametrize(("prior", "space"), [case[:2] for case in MAXIMISED.values()], ids=MAXIMISED.keys())
def test_gains_are_those_of_the_maximiser(prior, space, bounds):
    norm2 = np.geomspace(0.1, 10.0, 300)
    bound = dataclasses.replace(prior, **bounds).bind(50, norm2, 2.0, space)
    s, q2 = search_table(1, 1.0, 1.0, bound.c, count=300)
    gains = bound.gains(s, q2, 1.0)
    np.testing.assert_allclose(gains, bound.maximise(s, q2, 1.0)[1], rtol=1e-11, atol=1e-14)
    assert (gains >= 0).all()
    some = np.array([200, 3, 77])
    np.testing.assert_allclose(bound.at(some).gains(s[some], q2[some], 1.0), gains[some], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("prior", "space"), [case[:2] for case in MAXIMISED.values()], ids=MAXIMISED.keys())
def test_contribution_at_the_best_alpha_is_the_gain(prior, space):
    bound = prior.bind(50, 1.0, 1.0, space)
    s, q2 = search_table(2, 1.0, 1.0, bound.c, count=40)
    alpha, gain = bound.maximise(s, q2, 1.0)
    kept = np.isfinite(alpha)
    np.testing.assert_allclose(bound.contribution(alpha[kept], s[kept], q2[kept], 1.0), gain[kept], rtol=1e-13)


def log_prior_of_one(bound, logs):
    """The log prior of one component as a function of (log alpha, log beta)."""
    return bound.log_prior(np.exp(logs[:1]), np.exp(logs[1]))[0]


@pytest.mark.parametrize(("prior", "space"), [case[:2] for case in MAXIMISED.values()], ids=MAXIMISED.keys())
def test_derivatives_are_finite_differences(prior, space):
    alpha, beta, norm2 = np.geomspace(0.01, 100.0, 5), 0.7, np.array([1.0, 3.0, 0.2, 1.0, 9.0])
    bound = prior.bind(50, norm2, 2.0, space)
    first, second, in_noise = bound.derivatives(alpha, beta)
    for i in range(5):
        log_prior = partial(log_prior_of_one, bound.at(np.array([i])))
        point = np.log([alpha[i], beta])
        # -b alpha, up to 900 here, has derivatives of that size, and the error of the differences grows with it.
        close = {"rtol": 1e-6, "atol": 1e-8}
        np.testing.assert_allclose(ref.finite_difference(log_prior, point), [first[i], in_noise[i]], **close)
        mixed, in_noise_twice = (-second[i], second[i]) if bound.c else (0.0, 0.0)
        hessian = ref.finite_difference_hessian(log_prior, point)
        np.testing.assert_allclose(hessian, [[second[i], mixed], [mixed, in_noise_twice]], **close)


REFUSED = {
    "power(-0.6)": (sbl.Power(-0.6), None, r"behaves like alpha\^-0.6, and below -1/2 every component's maximum is at"),
    "power(-0.5)": (sbl.Power(-0.5), None, r"behaves like alpha\^-0.5"),
    "jeffreys in alpha": (sbl.Jeffreys(), "alpha", r"behaves like alpha\^-1, .* use space='log'"),
    "flat(log) in alpha": (sbl.Flat(measure="log"), "alpha", r"behaves like alpha\^-1"),
    "flat in log": (sbl.Flat(), "log", r"grows like alpha\^1 without end, so that every component is pruned"),
    "smoothness(alpha) in log": (sbl.Smoothness(1.0, "alpha"), "log", r"grows like alpha\^1 without end"),
    "smoothness in alpha": (sbl.Smoothness(1.0), "alpha", r"behaves like alpha\^-1"),
    "gamma in alpha": (sbl.Gamma(a=0.2), "alpha", r"space='alpha': .* behaves like alpha\^-0.8"),
    "gamma(1, 0)": (sbl.Gamma(1.0, 0.0), None, r"grows like alpha\^1 without end.* a prior with b > 0"),
    "power(-0.6) in log": (sbl.Power(-0.6), "log", r"grows like alpha\^0.4 without end"),
}


@pytest.mark.parametrize(("prior", "space", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_modes_that_do_not_exist_are_refused(prior, space, message):
    with pytest.raises(ValueError, match=message):
        prior.maximise(1.0, 5.0, space=space)
    assert np.isfinite(prior.log_density(1.0))  # the distribution is proper on the bounds all the same


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sbl.Smoothness("XIC"), r"c='XIC' must be a finite number >= 0, or 'None', 'AIC', 'BIC', 'RIC'"),
        (lambda: sbl.Smoothness(-1), r"c=-1 must be a finite number >= 0"),
        (lambda: sbl.Smoothness(np.nan), r"c=nan must be a finite number"),
        (lambda: sbl.Smoothness(np.inf), r"c=inf must be a finite number"),
        (lambda: sbl.Smoothness(None), r"c=None must be a finite number"),
        (lambda: sbl.Smoothness(measure="linear"), r"measure='linear' is unknown: choose one of .*'alpha'"),
        (lambda: sbl.Flat(measure="x"), r"measure='x' is unknown"),
        (lambda: sbl.Jeffreys(measure="alpha"), r"measure='alpha' contradicts Jeffreys"),
        (lambda: sbl.Flat(low=2.0, high=1.0), r"low=2.0 must lie below high=1.0: swap them"),
        (lambda: sbl.Gamma(low=1.0, high=1.0), r"low=1.0 must lie below high=1.0"),
        (lambda: sbl.Power(low=-1.0), r"low=-1.0 must be positive and finite"),
        (lambda: sbl.Jeffreys(low=0.0), r"low=0.0 must be positive and finite"),
        (lambda: sbl.Smoothness(high=np.inf), r"high=inf must be positive and finite"),
        (lambda: sbl.Flat(high=np.nan), r"high=nan must be positive and finite"),
        (lambda: sbl.Power(0.1), r"zeta=0.1 must be finite and <= 0: a positive power prunes every component"),
        (lambda: sbl.Power(np.nan), r"zeta=nan must be finite"),
        (lambda: sbl.Gamma(a=-1.0), r"a=-1.0 must be a finite number >= 0"),
        (lambda: sbl.Gamma(b=np.nan), r"b=nan must be a finite number >= 0"),
        (lambda: sbl.Flat().maximise(1.0, 2.0, space="beta"), r"space='beta' is unknown: .*'alpha', 'log'"),
        (lambda: sbl.Flat().log_density(1.0, coordinate="beta"), r"coordinate='beta' is unknown"),
        (lambda: sbl.Smoothness("BIC").strength(), r"c='BIC' depends on the number of observations: pass n="),
        (lambda: sbl.Smoothness("RIC").maximise(1.0, 2.0), r"c='RIC' depends on the number of observations"),
        (lambda: sbl.Smoothness().log_density(1.0), r"c='BIC' depends on the number of observations"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("c", "expected"),
    [("None", 0.0), ("AIC", 1.0), ("BIC", np.log(100) / 2), ("RIC", np.log(100)), (0, 0.0), (2.5, 2.5)],
)
def test_strength(c, expected):
    assert sbl.Smoothness(c).strength(100) == pytest.approx(expected, rel=1e-15)


def test_defaults_are_those_of_the_design():
    assert sbl.Smoothness() == sbl.Smoothness("BIC", measure="log", normalize=True)
    assert sbl.Flat().measure == "alpha"
    assert [prior.coordinate for prior in (sbl.Flat(), sbl.Power(), sbl.Smoothness(), sbl.Gamma(), sbl.Jeffreys())] == [
        "alpha",
        "alpha",
        "log",
        "log",
        "log",
    ]


@pytest.mark.parametrize(
    "prior",
    [
        sbl.Flat(low=1e-2, high=1e4),
        sbl.Jeffreys(),
        sbl.Smoothness(2.0, "alpha", normalize=False),
        sbl.Smoothness("RIC", high=1e6),
        sbl.Gamma(1.0, 2.0, high=5.0),
        sbl.Power(-0.3),
    ],
    ids=repr,
)
def test_priors_are_values(prior):
    again = type(prior)(**prior.config())
    assert again == prior
    assert hash(again) == hash(prior)
    assert eval(repr(prior), vars(sbl)) == prior
    with pytest.raises(dataclasses.FrozenInstanceError):
        prior.low = 1.0
