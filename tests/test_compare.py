"""The comparison of the delta function with the posterior: its numbers, its sentence, its table and its picture."""

import dataclasses
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import sbl_ppl as sbl
from sbl_ppl.arviz_io import elpd_terms, group
from sbl_ppl.refitting import folds_of, held_out_terms


@pytest.fixture(scope="module")
def report(sampled):
    fit, post, signal = sampled
    return sbl.compare(fit, post, truth=signal)


def test_predictions_are_those_of_the_two(sampled, report):
    fit, post, _ = sampled
    mean, sd = sbl.predict_posterior(fit, post, augment=False)
    np.testing.assert_allclose(report.posterior.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(report.posterior.sd, sd, rtol=1e-12)
    np.testing.assert_array_equal(report.delta.sd, fit.predict(augment=False)[1])
    np.testing.assert_allclose(
        report.difference, (mean - fit.predict(augment=False)[0]) / np.sqrt(fit.noise_variance), rtol=1e-9
    )
    np.testing.assert_allclose(report.sd_ratio, sd / fit.predict(augment=False)[1], rtol=1e-12)
    smooth = (
        sbl.predict_posterior(fit, post, noise=False, augment=False)[1] / fit.predict(noise=False, augment=False)[1]
    )
    np.testing.assert_allclose(report.function_sd_ratio, smooth, rtol=1e-12)


def test_divergence_is_that_of_two_normals(report):
    """By quadrature over a new observation."""
    p, q = report.posterior, report.delta
    t = np.linspace(-20, 30, 50_001)[:, None]

    def log_normal(mean, sd):
        return -0.5 * ((t - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))

    lp, lq = log_normal(p.mean, p.sd), log_normal(q.mean, q.sd)
    exact = np.trapezoid(np.exp(lp) * (lp - lq), t, axis=0).mean()
    np.testing.assert_allclose(report.divergence, exact, rtol=1e-6)


def test_components_and_noise(sampled, report):
    fit, post, _ = sampled
    posterior = group(post, "posterior")
    known = report.components
    np.testing.assert_array_equal(known["map_alpha"][fit.active], fit.alpha)
    assert np.isinf(np.delete(known["map_alpha"], fit.active)).all()
    np.testing.assert_allclose(known["gamma"], posterior["gamma"].values.mean((0, 1)), rtol=1e-12)
    share = np.mean(posterior["gamma"].values > 0.5, axis=(0, 1))
    np.testing.assert_allclose(known["inclusion"], share, rtol=1e-12)
    np.testing.assert_array_equal(report.to_dataframe()["inclusion"], known["inclusion"])
    draws = posterior["alpha"].values.reshape(-1, 8)
    np.testing.assert_allclose(known["alpha_95"], np.quantile(draws, 0.95, axis=0), rtol=1e-12)
    noise = posterior["noise_variance"].values
    assert report.noise_variance["map_quantile"] == np.mean(noise < fit.noise_variance)
    assert report.noise_variance["q50"] == np.quantile(noise, 0.5)
    assert report.degrees_of_freedom["map"] == fit.degrees_of_freedom
    there, here = known["gamma"], known["map_gamma"]
    np.testing.assert_allclose(report.displaced, np.abs(there - here).sum() / (there + here).sum(), rtol=1e-12)


def test_coverage_counts_the_truth_in_the_band(sampled, report):
    fit, _, signal = sampled
    mean, sd = fit.predict(noise=False, augment=False)
    assert report.coverage["delta"] == np.mean(np.abs(signal - mean) <= 1.96 * sd)
    assert 0 <= report.coverage["posterior"] <= 1
    assert sbl.compare(*sampled[:2]).coverage is None


def test_elpd_of_both(sampled, report):
    fit, _, _ = sampled
    table = report.table()
    assert set(table.index) == {"delta", "posterior"}
    change, se = report.elpd_difference
    assert se > 0
    text = repr(report)
    assert f"difference {change:+.2f}" in text
    terms = brute_force_terms(fit)
    np.testing.assert_allclose(elpd_terms(report.elpd["delta"])[0], terms, atol=1e-6)
    assert f"{terms.sum():.2f}" in text
    assert terms.sum() < fit.leave_one_out().sum()  # which has seen what it predicts


def brute_force_terms(fit):
    """The same kernels, fitted by hand without each observation."""
    terms = []
    for n in range(len(fit.t)):
        keep = np.delete(np.arange(len(fit.t)), n)
        less = sbl.fit_map(fit.x[keep], fit.t[keep], fit.dictionary, noise_prior=fit.settings["noise_prior"])
        mean, sd = less.predict(fit.x[[n]], augment=False)
        terms.append(-0.5 * (np.log(2 * np.pi * sd**2) + ((fit.t[n] - mean) / sd) ** 2).item())
    return np.array(terms)


def test_an_optimistic_elpd_would_be_seen():
    """Noise alone: what a fit keeps of it, it has seen, and its own leave-one-out terms do not say so.

    Over twelve series the mean of the difference, honest terms minus those of the precisions that saw t_n, lies four
    of its standard errors below zero: a false alarm has a chance below 1e-4.
    """
    rng, differences = np.random.default_rng(0), []
    for _ in range(12):
        fit = sbl.fit_map(np.arange(40.0), rng.standard_normal(40), sbl.Gaussian(1.0), sbl.Smoothness("AIC"))
        differences.append(held_out_terms(fit).sum() - fit.leave_one_out().sum())
    assert np.mean(differences) < -4 * np.std(differences) / np.sqrt(12)


def test_without_terms_of_the_delta_function_nothing_is_claimed(report):
    less = dataclasses.replace(report, elpd={"posterior": report.elpd["posterior"]})
    assert np.isnan(less.elpd_difference).all()
    assert "held out" not in less.verdict
    assert "unknown" in repr(less)


def test_large_sets_are_cut_into_folds():
    folds = folds_of(1001)
    assert len(folds) == 20
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(1001))
    assert [list(fold) for fold in folds_of(3)] == [[0], [1], [2]]


def test_a_grid_of_new_inputs(sampled):
    fit, post, _ = sampled
    x = np.linspace(-2, 2, 11)
    report = sbl.compare(fit, post, x_new=x, max_draws=50)
    assert report.difference.shape == (11,)
    with pytest.raises(ValueError, match=r"truth has shape \(3,\), the grid \(11,\)"):
        sbl.compare(fit, post, x_new=x, truth=[1.0, 2.0, 3.0])


def test_sentence_follows_the_numbers(report):
    assert "Observations that were held out favour" in report.verdict
    same = dataclasses.replace(report, posterior=report.delta)
    assert "loses little in prediction, 0 nats" in same.verdict
    far = dataclasses.replace(report.delta, mean=report.delta.mean + 3)
    assert "loses a lot in prediction" in dataclasses.replace(report, posterior=far).verdict
    known = report.components
    point = np.where(np.isfinite(known["map_alpha"]), known["map_alpha"], 1e10)
    sure = known | {"gamma": known["map_gamma"], "alpha_05": point, "alpha_95": point}
    assert "a good description of the hyperparameters" in dataclasses.replace(report, components=sure).verdict
    assert "no description of the hyperparameters" in report.verdict


def test_table_of_columns(sampled, report):
    table = report.to_dataframe()
    assert list(table.index) == sampled[0].design.labels
    assert {"map_alpha", "alpha_05", "alpha_95", "map_gamma", "gamma", "weight", "weight_sd"} <= set(table.columns)


def test_picture(report, tmp_path):
    axes = sbl.plot_comparison(report)
    axes[0].figure.savefig(tmp_path / "comparison.png")
    assert (tmp_path / "comparison.png").stat().st_size > 20_000
    assert len(axes) == 4
    assert len(axes[2].get_yticklabels()) == 8
    for ax in axes:  # beside the data, within the figure
        box = ax.get_legend().get_window_extent()
        assert ax.bbox.x1 <= box.x0
        assert box.x1 <= ax.figure.bbox.x1
    own = plt.subplots(2, 2)[1]
    assert sbl.plot_comparison(report, columns=3, axes=own)[0] is own[0, 0]
    plt.close("all")


def test_picture_names_the_columns_that_differ_most(report):
    """The third and the sixth: their gamma is not large, but another than the MAP's."""
    here, there = np.full(8, 0.9), np.full(8, 0.9)
    here[[2, 5]], there[[2, 5]] = (0.0, 0.6), (0.3, 0.1)
    changed = dataclasses.replace(report, components=report.components | {"map_gamma": here, "gamma": there})
    axes = sbl.plot_comparison(changed, columns=2)
    labels = report.fit.design.labels
    assert [text.get_text() for text in axes[2].get_yticklabels()] == [labels[2], labels[5]]
    assert axes[2].get_shared_y_axes().joined(*axes[2:])
    assert [bar.get_width() for bar in axes[3].patches] == [0.0, 0.6, 0.3, 0.1]
    name = axes[2].get_yticklabels()[0]
    assert name.get_rotation() == 0
    assert name.get_fontsize() >= 8
    plt.close("all")


@pytest.mark.parametrize(("factor", "scale"), [(1.0, "linear"), (1e3, "symlog"), (1e9, "symlog")])
def test_picture_takes_logarithms_of_ratios_that_explode(report, factor, scale):
    sd = report.delta.function_sd.copy()
    sd[3] = report.posterior.function_sd[3] / factor
    ax = sbl.plot_comparison(dataclasses.replace(report, delta=dataclasses.replace(report.delta, function_sd=sd)))[1]
    assert ax.get_yscale() == scale
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_allclose(drawn[3], min(factor, 1e6))
    assert drawn.max() < ax.get_ylim()[1]
    assert ("cut at 1e+06" in ax.lines[0].get_label()) == (factor > 1e6)
    plt.close("all")


def test_picture_refuses_bad_input_before_it_draws(report):
    with pytest.raises(ValueError, match="columns=0 must be a whole number of at least 1"):
        sbl.plot_comparison(report, columns=0)
    plane = dataclasses.replace(report, fit=dataclasses.replace(report.fit, x=np.zeros((len(report.fit.t), 2))))
    with pytest.raises(ValueError, match="fit has 2 input dimensions and a curve has one"):
        sbl.plot_comparison(plane)
    assert not plt.get_fignums()
    with pytest.raises(ValueError, match="axes has 2 axes and there are 4 panels: give four"):
        sbl.plot_comparison(report, axes=plt.subplots(2)[1])
    plt.close("all")


def test_bad_input_is_named(sampled):
    fit, post, _ = sampled
    with pytest.raises(ValueError, match="fit must be a MapFit"):
        sbl.compare(post, fit)
    with pytest.raises(ValueError, match="no group 'posterior'"):
        sbl.compare(fit, {})
    other = sbl.fit_map(fit.x, fit.t, sbl.Gaussian(1.0))
    with pytest.raises(ValueError, match="post has 8 columns, fit 24"):
        sbl.compare(other, post)


def test_two_identical_columns_make_a_ridge_that_predictions_do_not_feel():
    """T01's thought experiment: only 1/alpha_1 + 1/alpha_2 is known, so either column can do the work.

    The share of the first one in the sum is spread over all of (0, 1); the predictions of the delta function, which
    keeps one of the two, and of the posterior agree within .02 nats.
    """
    x = np.linspace(-2, 2, 60)
    column = np.exp(-(x**2))
    t = 3 * column + 0.2 * np.random.default_rng(0).standard_normal(60)
    fit = sbl.fit_map(x, t, sbl.Columns(np.stack([column, column], 1)), center=False)
    assert len(fit.active) == 1
    prior = sbl.Jeffreys(low=1e-4, high=1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.SamplingWarning)  # some transitions diverge in the corner of the ridge
        post = sbl.sample(fit, "nuts", prior=prior, num_samples=2000, num_chains=2, progress=False)
    variances = 1 / group(post, "posterior")["alpha"].values
    share = (variances[..., 0] / variances.sum(-1)).ravel()
    assert np.mean(share < 0.1) > 0.2
    assert np.mean(share > 0.9) > 0.2
    report = sbl.compare(fit, post)
    assert report.divergence < 0.02
    assert report.displaced > 0.3
    assert "no description of the hyperparameters" in report.verdict
