"""One more kernel at each new input, integrated out: equal to a dense model that has it, and honest far from data."""

import numpy as np
import pytest
import reference
from scipy import stats

import sbl_ppl as sbl
from sbl_ppl.sampling import mixture_quantiles

X = np.concatenate([np.linspace(0.0, 4.0, 20), np.linspace(8.0, 12.0, 20)])
T = np.sin(X) + 3.0 + 0.1 * np.random.default_rng(0).standard_normal(40)
NEW = np.array([2.0, 4.2, 6.0, 12.5, 30.0])
DICTIONARIES = {
    "gaussian": sbl.Gaussian(1.5),
    "with others": sbl.Gaussian(0.7) + sbl.Linear() + sbl.Gaussian(1.5),
    "two dimensions": sbl.Gaussian([1.5, 2.0]),
}


def inputs(name, x):
    return np.stack([x, np.cos(3 * x)], axis=1) if name == "two dimensions" else x


def dense_prediction(fit, name, x_new):
    """Mean and variance with the new kernel as one more column, for one new input after the other."""
    widths = np.array([1.5, 2.0]) if name == "two dimensions" else np.array([1.5])
    points, new = (np.reshape(inputs(name, x), (len(x), -1)) for x in (X, x_new))
    raw, at_new = fit.dictionary.bind(fit.x).matrix(), fit.dictionary.bind(inputs(name, X))
    ones = 1.0 if fit.settings["center"] else 0.0
    spread = np.sqrt(np.mean((T - ones * T.mean()) ** 2))
    found = []
    for k in range(len(x_new)):
        own = np.exp(-np.sum(((points - new[k]) / widths) ** 2, axis=1))
        columns = [raw[:, fit.active], own[:, None]]
        values = np.concatenate([at_new.evaluate(inputs(name, x_new)[[k]], fit.active)[0], [1.0]])
        alpha = np.append(fit.alpha, spread**-2)
        if fit.settings["center"]:  # a constant with a prior so wide that it does not matter
            columns, values, alpha = [*columns, np.ones((40, 1))], np.append(values, 1.0), np.append(alpha, 1e-9)
        mean, Sigma = reference.weights_posterior(np.hstack(columns), T, alpha, fit.noise_variance)
        found.append((values @ mean, values @ Sigma @ values))
    return np.transpose(found)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("name", DICTIONARIES)
def test_equals_a_dense_model_with_one_more_column(name, center):
    fit = sbl.fit_map(inputs(name, X), T, DICTIONARIES[name], center=center)
    mean, sd = fit.predict(inputs(name, NEW), noise=False)
    expected, variance = dense_prediction(fit, name, NEW)
    np.testing.assert_allclose(mean, expected, rtol=1e-5)  # the wide prior of the constant costs as much
    np.testing.assert_allclose(sd**2, variance, rtol=1e-4)
    _, noisy = fit.predict(inputs(name, NEW))
    np.testing.assert_allclose(noisy**2, sd**2 + fit.noise_variance, rtol=1e-12)


def test_far_from_all_data_the_band_is_that_of_t():
    fit = sbl.fit_map(X, T, sbl.Gaussian(0.5))
    (_, sd), (_, alone) = (fit.predict([30.0, 6.0], noise=False, augment=augment) for augment in (True, False))
    np.testing.assert_allclose(sd**2 - alone**2, np.var(T), rtol=1e-6)
    assert (alone < 0.1 * np.std(T)).all()


def test_training_inputs_are_new_inputs_too():
    fit = sbl.fit_map(X, T, sbl.Gaussian(1.5))
    for there, here in zip(fit.predict(X), fit.predict(), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-9)


def test_blocks_of_new_inputs_do_not_matter(monkeypatch):
    """More inputs than fit into one block: the same as one by one."""
    x = np.linspace(0.0, 12.0, 300)
    fit = sbl.fit_map(x, np.sin(x), sbl.Gaussian(1.0), noise_variance=0.01)
    new = np.linspace(-1.0, 13.0, 20_000)
    some = np.array([0, 9_999, 19_999])
    for whole, single in zip(fit.predict(new), fit.predict(new[some]), strict=True):
        np.testing.assert_allclose(whole[some], single, rtol=1e-9)


def test_other_dictionaries_are_left_alone():
    fit = sbl.fit_map(X, T, sbl.LinearSpline())
    np.testing.assert_array_equal(fit.predict(NEW), fit.predict(NEW, augment=False))
    with pytest.raises(ValueError, match=r"augment=True adds a kernel .* no Gaussian"):
        fit.predict(NEW, augment=True)


@pytest.mark.parametrize("dictionary", [sbl.Gaussian(1.5), sbl.Wavelet("haar")], ids=str)
def test_quantiles_and_draws_have_the_mean_and_the_sd(dictionary):
    """Of 4000 draws the mean lies within 4.5 standard errors, the variance too: false alarms 1e-4 in all."""
    x = np.arange(32.0)
    t = np.sin(x / 3) + 0.1 * np.random.default_rng(1).standard_normal(32)
    fit = sbl.fit_map(x, t, dictionary)
    for noise in (True, False):
        mean, sd = fit.predict(x[3:9], noise=noise)
        low, high = fit.predict(x[3:9], noise=noise, quantiles=(0.025, 0.975))
        np.testing.assert_allclose([low, high], [mean - 1.959964 * sd, mean + 1.959964 * sd], rtol=1e-6)
        draws = fit.predict(x[3:9], noise=noise, draws=4000, seed=3)
        assert (np.abs(draws.mean(0) - mean) < 4.5 * sd / np.sqrt(4000)).all()
        assert (np.abs(draws.var(0) / sd**2 - 1) < 4.5 * np.sqrt(2 / 4000)).all()
        np.testing.assert_array_equal(draws, fit.predict(x[3:9], noise=noise, draws=4000, seed=3))


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, [0.5, 2.0], "half"])
def test_bad_quantiles_are_named(bad):
    with pytest.raises(ValueError, match="quantiles"):
        sbl.fit_map(X, T, sbl.Gaussian(1.5)).predict(NEW, quantiles=bad)


def test_quantiles_of_a_mixture():
    mean, sd = np.array([[0.0, 1e6], [3.0, 1e6 + 1]]), np.array([[1.0, 1e-3], [0.1, 1e-3]])
    levels = np.array([0.025, 0.4, 0.9])
    found = mixture_quantiles(levels, mean, sd)
    share = np.mean([stats.norm.cdf(found, m, s) for m, s in zip(mean, sd, strict=True)], axis=0)
    np.testing.assert_allclose(share, np.broadcast_to(levels[:, None], share.shape), atol=1e-6)


def test_posterior_predictions_are_those_of_each_draw(sampled):
    """Each draw is a model of its own: mean and variance against the dense one with one more column."""
    fit, post, _ = sampled
    new = np.array([0.2, 5.0])
    mean, sd = sbl.predict_posterior(fit, post, new, max_draws=1)
    alpha = post.posterior["alpha"].values[0, 0]
    noise = float(post.posterior["noise_variance"].values[0, 0])
    raw, bound = fit.dictionary.bind(fit.x).matrix()[:, :7], fit.dictionary.bind(fit.x)
    for k, x in enumerate(new):
        own = np.exp(-((fit.x - x) ** 2))
        columns = np.column_stack([raw, own, np.ones(24)])
        values = np.concatenate([bound.evaluate([x], np.arange(7))[0], [1.0, 1.0]])
        precisions = np.concatenate([alpha[:7], [1 / np.var(fit.t), 1e-9]])
        w, Sigma = reference.weights_posterior(columns, fit.t, precisions, noise)
        assert mean[k] == pytest.approx(values @ w, rel=1e-5)
        assert sd[k] ** 2 == pytest.approx(values @ Sigma @ values + noise, rel=1e-4)


# --- default bounds where the data do not see a column -----------------------------------------------------------


GAP = np.concatenate([np.linspace(0.0, 4.0, 40), np.linspace(8.0, 12.0, 40)])


def test_kernels_in_a_gap_cannot_carry_more_than_the_data():
    """The prior sd of any one of them at its own centre is at most five spreads of t, whatever its norm."""
    t = np.sin(GAP) + 0.1 * np.random.default_rng(0).standard_normal(80)
    centers = np.linspace(0.0, 12.0, 49)
    fit = sbl.fit_map(GAP, t, sbl.Gaussian(0.5, centers=centers))
    problem = fit.problem()
    low = np.broadcast_to(problem.prior.low, 49) * (problem.norms / problem.scale) ** 2
    peak = np.max(np.abs(fit.design.evaluate(centers, np.arange(49))), axis=0)
    seen = np.sqrt(np.sum(fit.design.matrix() ** 2, axis=0))
    assert (peak / np.sqrt(low))[seen < 0.1 * peak].max() < 5.1 * np.std(t)
    mean, sd = fit.predict([6.0], noise=False)
    assert abs(mean[0]) + 2 * sd[0] < 10 * np.std(t)


@pytest.mark.parametrize(
    "dictionary",
    [sbl.Gaussian(0.5), sbl.Gaussian(3.0), sbl.LinearSpline(), sbl.ThinPlateSpline(3.0), sbl.Polynomial(3)],
    ids=str,
)
def test_columns_that_the_data_see_keep_their_bounds(dictionary):
    """Kernels centred on data, and splines that need large weights that cancel, are as free as they were."""
    problem = sbl.fit_map(GAP + 1.0, np.sin(GAP), dictionary, noise_variance=0.01).problem()
    assert (problem.prior.low, problem.prior.high) == (1e-10, 1e10)


def test_given_bounds_are_used_as_they_are():
    prior = sbl.Flat(low=1e-4, high=1e4)
    fit = sbl.fit_map(GAP, np.sin(GAP), sbl.Gaussian(0.5, centers=[2.0, 6.0]), prior, noise_variance=0.01)
    problem = fit.problem()
    np.testing.assert_allclose(problem.prior.low * (problem.norms / problem.scale) ** 2, 1e-4)


def test_columns_that_the_data_do_not_see_are_never_kept():
    """Zero at all inputs, or so small that nothing of it is left; under priors that prune nothing too."""
    for prior in (None, sbl.Flat(), sbl.Power(-0.2), sbl.Gamma(1e-2, 1e-2)):
        fit = sbl.fit_map(GAP, np.sin(GAP) + 0.01 * GAP, sbl.Gaussian(0.5, centers=[2.0, 500.0]), prior, center=False)
        assert 1 not in fit.active
        assert np.isfinite(fit.predict([500.0], augment=False)).all()
