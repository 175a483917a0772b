"""ArviZ objects: groups, dimensions and coordinates, netCDF, and ArviZ's own functions on them, on both generations."""

import os
import threading
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import reference

import sbl_ppl as sbl
from sbl_ppl.arviz_io import _arviz, _is_tree, elpd, elpd_terms, group, point_elpd, rhat_and_ess

az = _arviz()
GROUPS = {
    "posterior": {"alpha", "log_alpha", "weights", "noise_variance", "gamma", "degrees_of_freedom"},
    "posterior_predictive": {"t"},
    "log_likelihood": {"t"},
    "observed_data": {"t"},
    "constant_data": {"map_active", "map_alpha", "part", "offset", "x"},
}


@pytest.fixture
def no_warnings_of_arviz():
    """What ArviZ says of pandas, Matplotlib and itself is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    plt.close("all")


def test_groups_and_variables(sampled):
    fit, post, _ = sampled
    for name, variables in GROUPS.items():
        assert set(group(post, name).data_vars) == variables
        assert set(group(fit.to_arviz(), name).data_vars) == variables
    assert set(group(post, "log_prior").data_vars) == {"alpha"}
    stats = {"diverging", "acceptance_rate", "n_steps", "energy", "lp", "log_likelihood"}
    assert set(group(post, "sample_stats").data_vars) == stats
    assert group(post, "sample_stats")["diverging"].dtype == bool


def test_dimensions_and_coordinates(sampled):
    fit, post, _ = sampled
    for data, draws in ((post, (2, 150)), (fit.to_arviz(num_draws=77), (1, 77))):
        posterior = group(data, "posterior")
        for name in ("alpha", "log_alpha", "weights", "gamma"):
            assert posterior[name].dims == ("chain", "draw", "basis")
            assert posterior[name].shape == (*draws, 8)
        for name in ("noise_variance", "degrees_of_freedom"):
            assert posterior[name].dims == ("chain", "draw")
        assert list(posterior["basis"].values) == fit.design.labels
        np.testing.assert_allclose(np.exp(posterior["log_alpha"].values), posterior["alpha"].values, rtol=1e-13)
        for name in ("log_likelihood", "posterior_predictive"):
            assert group(data, name)["t"].dims == ("chain", "draw", "obs")
            assert group(data, name)["t"].shape == (*draws, 24)
        np.testing.assert_array_equal(group(data, "observed_data")["t"].values, fit.t)
        np.testing.assert_array_equal(group(data, "observed_data")["obs"].values, fit.x)
        assert list(group(data, "constant_data")["part"].values) == ["Gaussian(1.0)"] * 7 + ["Bias"]
    assert float(group(post, "posterior")["alpha"].sel(basis=fit.labels[0]).mean()) > 0


def test_object_is_of_the_installed_generation(sampled):
    assert type(sampled[1]).__name__ == ("DataTree" if _is_tree() else "InferenceData")


def test_delta_function_stands_still_but_for_the_weights(sampled):
    """Weights against mean and covariance: 4000 draws, 4.5 standard errors."""
    fit, _, _ = sampled
    posterior = group(fit.to_arviz(num_draws=4000), "posterior")
    for name in ("alpha", "noise_variance", "gamma", "degrees_of_freedom"):
        assert np.ptp(posterior[name].values, axis=1).max() == 0
    np.testing.assert_allclose(posterior["alpha"].values[0, 0, fit.active], fit.alpha, rtol=1e-12)
    np.testing.assert_allclose(posterior["noise_variance"].values[0, 0], fit.noise_variance, rtol=1e-12)
    assert np.isfinite(posterior["alpha"].values).all()
    weights = posterior["weights"].values[0]
    pruned = np.setdiff1d(np.arange(8), fit.active)
    assert not weights[:, pruned].any()
    kept, sd = weights[:, fit.active], np.sqrt(fit.variance)
    assert np.all(np.abs(kept.mean(0) - fit.mean) < 4.5 * sd / np.sqrt(4000))
    found = np.cov(kept.T) / np.multiply.outer(sd, sd)
    assert np.all(np.abs(found - fit.covariance / np.multiply.outer(sd, sd)) < 4.5 * np.sqrt(2 / 4000))


@pytest.mark.parametrize("kind", ["posterior", "delta", "wavelet"])
def test_predictive_draws_are_the_draws_own_curves_plus_noise(sampled, kind):
    """What is left without the curve of a draw's weights, over the draw's noise sd, is standard normal white noise.

    And, with an intercept, one normal of variance 1/N for all observations of a draw. Mean, variance and correlation of
    neighbours, in time and from draw to draw, within 4.5 standard errors.
    """
    fit, post, _ = sampled
    if kind == "wavelet":
        t = np.repeat([0.0, 3.0, 1.0, -2.0], 4) + 0.1 * np.random.default_rng(0).standard_normal(16)
        fit = sbl.fit_map(None, t, sbl.Wavelet("haar"))
    data = post if kind == "posterior" else fit.to_arviz()
    posterior = group(data, "posterior")
    curves = posterior["weights"].values @ fit.design.matrix().T + fit.offset
    predicted = group(data, "posterior_predictive")["t"].values
    noise = (predicted - curves) / np.sqrt(posterior["noise_variance"].values)[..., None]
    limit, common = 4.5 / np.sqrt(noise.size), 0.0 if kind == "wavelet" else 1 / noise.shape[-1]
    assert abs(noise.mean()) < limit * np.sqrt(1 + common * noise.shape[-1])
    assert abs(noise.var() - 1 - common) < np.sqrt(2) * limit * (1 + 2 * common)
    assert abs(np.mean(noise[..., 1:] * noise[..., :-1]) - common) < limit * 1.2
    assert abs(np.mean(noise[:, 1:] * noise[:, :-1])) < limit * 1.1
    assert len(np.unique(noise[..., 0])) == noise[..., 0].size


def test_predictive_draws_are_around_the_data(sampled):
    """Their mean is the posterior's prediction within 4.5 standard errors of 300 draws, and follows t, not zero."""
    fit, post, _ = sampled
    mean, sd = sbl.predict_posterior(fit, post, augment=False)
    found = group(post, "posterior_predictive")["t"].values.reshape(300, -1)
    assert np.all(np.abs(found.mean(0) - mean) < 4.5 * sd / np.sqrt(300))
    assert np.std(fit.t - found.mean(0)) < 0.5 * np.std(fit.t)


def test_predictive_draws_have_the_seed_of_the_run(sampled):
    fit, _, _ = sampled

    def drawn(**options):
        return group(fit.to_arviz(**options), "posterior_predictive")["t"].values

    np.testing.assert_allclose(drawn(num_draws=20)[:, :7], drawn(num_draws=7), rtol=1e-12)
    assert not np.any(drawn(num_draws=7) == drawn(num_draws=7, seed=1))


def test_too_many_predictive_draws_are_left_out_and_it_says_so(sampled, monkeypatch):
    monkeypatch.setattr("sbl_ppl.map_fit._MOST_PREDICTED", 24 * 50)
    assert group(sampled[0].to_arviz(num_draws=50), "posterior_predictive")["t"].size == 24 * 50
    data = sampled[0].to_arviz(num_draws=51)
    assert group(data, "posterior").attrs["posterior_predictive"] == "left out: 1224 numbers, more than 1200"
    with pytest.raises(ValueError, match="no group 'posterior_predictive'"):
        group(data, "posterior_predictive")


def test_delta_function_leaves_one_out_exactly(sampled):
    fit, _, _ = sampled
    Phi, t = fit.design.columns(fit.active), fit.t - fit.offset
    exact = reference.leave_one_out_terms(Phi, t, fit.alpha, fit.noise_variance, intercept=True)
    np.testing.assert_allclose(fit.leave_one_out(), exact, rtol=1e-8)
    terms = group(fit.to_arviz(), "log_likelihood")["t"].values
    np.testing.assert_allclose(terms[0, 0], fit.leave_one_out(), rtol=1e-12)


def test_bad_number_of_draws_is_named(sampled):
    with pytest.raises(ValueError, match="num_draws=2"):
        sampled[0].to_arviz(num_draws=2)


def test_netcdf_round_trip(sampled, tmp_path):
    fit, post, _ = sampled
    for name, data in {"posterior": post, "delta": fit.to_arviz()}.items():
        back = sbl.read_netcdf(sbl.write_netcdf(data, tmp_path / f"{name}.nc"))
        for part in GROUPS:
            assert group(back, part).equals(group(data, part))
            assert list(group(back, part).coords) == list(group(data, part).coords)
        assert group(back, "posterior").attrs["prior"] == "Smoothness(c='BIC')"
    sbl.write_netcdf(back, tmp_path / "delta.nc")  # a file that is open is replaced, not destroyed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta.nc", "posterior.nc"]
    assert sbl.compare(fit, sbl.read_netcdf(tmp_path / "posterior.nc")).verdict == sbl.compare(fit, post).verdict


def test_failed_write_keeps_the_old_file(sampled, tmp_path, monkeypatch):
    path = sbl.write_netcdf(sampled[1], tmp_path / "post.nc")
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        sbl.write_netcdf(sampled[0].to_arviz(), path)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["post.nc"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # h5netcdf closes what it never opened
def test_damaged_and_foreign_files_are_one_clear_error(sampled, tmp_path):
    path = sbl.write_netcdf(sampled[1], tmp_path / "post.nc")
    content = path.read_bytes()
    group(sampled[1], "observed_data").to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    foreign = (tmp_path / "other.nc").read_bytes()
    hole = bytearray(content)
    hole[len(content) // 4 : 3 * len(content) // 4] = bytes(3 * len(content) // 4 - len(content) // 4)
    for damaged in (b"", b"x,t\n1,2\n", content[: len(content) // 2], bytes(hole), foreign):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"post\.nc cannot be read as what write_netcdf wrote: ."):
            sbl.read_netcdf(path)


def test_what_was_read_is_in_memory(sampled, tmp_path):
    path = sbl.write_netcdf(sampled[1], tmp_path / "post.nc")
    back = sbl.read_netcdf(path)
    path.write_bytes(bytes(path.stat().st_size))
    assert group(back, "posterior").equals(group(sampled[1], "posterior"))


def test_two_threads_leave_the_warnings_alone(monkeypatch):
    """The first enters before the second, if that may, and leaves before it."""
    draws = np.random.default_rng(0).standard_normal((2, 40, 1))
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    rhat = az.rhat

    def slow(*args):
        if threading.current_thread().name == "first":
            first_in.set()
            second_in.wait(0.5)
        else:
            second_in.set()
            assert first_out.wait(30)
        return rhat(*args)

    def first():
        rhat_and_ess(draws)
        first_out.set()

    def second():
        assert first_in.wait(30)
        rhat_and_ess(draws)

    monkeypatch.setattr(az, "rhat", slow)
    before = list(warnings.filters)
    threads = [threading.Thread(target=first, name="first"), threading.Thread(target=second, name="second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after, warnings.filters[:] = list(warnings.filters), before
    assert after == before


def test_missing_file_and_missing_group_are_named(sampled, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.nc"):
        sbl.read_netcdf(tmp_path / "nothing.nc")
    with pytest.raises(ValueError, match="no group 'nonsense'"):
        group(sampled[1], "nonsense")


@pytest.mark.usefixtures("no_warnings_of_arviz")
class TestArvizFunctions:
    def test_summary(self, sampled):
        for data in (sampled[1], sampled[0].to_arviz()):
            table = az.summary(data, var_names=["alpha", "noise_variance", "degrees_of_freedom"])
            assert len(table) == 10
            assert f"alpha[{sampled[0].labels[0]}]" in table.index

    def test_loo_and_compare(self, sampled):
        fit, post, _ = sampled
        result = az.loo(post, pointwise=True)
        table = az.compare({"delta": point_elpd(result, fit.leave_one_out()), "posterior": result})
        assert set(table.index) == {"delta", "posterior"}
        table = az.compare({"one": post, "two": post})
        assert len(table) == 2

    @pytest.mark.parametrize("name", ["plot_forest", "plot_trace", "plot_rank"])
    def test_plots(self, sampled, name, tmp_path):
        plot = getattr(az, name)(sampled[1], var_names=["noise_variance", "degrees_of_freedom"])
        figure = plt.gcf()
        figure.savefig(tmp_path / "figure.png")
        assert plot is not None
        assert (tmp_path / "figure.png").stat().st_size > 5000

    def test_predictive_checks(self, sampled, tmp_path):
        """The draws of the model that made the data are calibrated: PIT values are not all at one end."""
        for data in (sampled[1], sampled[0].to_arviz()):
            az.plot_ppc_dist(data) if _is_tree() else az.plot_ppc(data)
            plt.gcf().savefig(tmp_path / "ppc.png")
        pit = az.loo_pit(sampled[1]) if _is_tree() else az.loo_pit(sampled[1], y="t")
        values = np.asarray(pit["t"] if _is_tree() else pit)
        assert values.shape == (24,)
        assert 0.2 < values.mean() < 0.8

    def test_prior_sensitivity(self, sampled):
        """Power-scaling the prior per d log(alpha) scales the severity c; the degrees of freedom must feel it."""
        names = ["degrees_of_freedom", "noise_variance"]
        if _is_tree():
            result = az.psense(sampled[1], group="prior", var_names=names)
        else:
            result = az.psens(sampled[1], component="prior", var_names=names)
        assert np.isfinite(float(result["degrees_of_freedom"]))

    def test_delta_function_beside_posterior_in_one_forest(self, sampled, tmp_path):
        data = {"delta": sampled[0].to_arviz(), "posterior": sampled[1]}
        if _is_tree():
            az.plot_forest(data, var_names=["noise_variance"])
        else:
            az.plot_forest(list(data.values()), model_names=list(data), var_names=["noise_variance"])
        plt.gcf().savefig(tmp_path / "forest.png")


def test_leave_one_out_of_the_draws_is_the_harmonic_mean(sampled):
    """Far from heavy tails Pareto smoothing changes little: within .02 nats a point of the plain harmonic mean."""
    _, post, _ = sampled
    terms, k = elpd_terms(elpd(post))
    values = group(post, "log_likelihood")["t"].values.reshape(300, -1)
    harmonic = -np.log(np.mean(np.exp(-values), 0))
    easy = k < 0.3
    assert easy.sum() > 12
    np.testing.assert_allclose(terms[easy], harmonic[easy], atol=0.02)


def test_diagnostics_of_odd_chains():
    draws = np.random.default_rng(0).standard_normal((2, 400, 3))
    draws[..., 1] = 7.0
    draws[1, :, 2] += 5.0
    rhat, ess = rhat_and_ess(draws)
    assert rhat[0] < 1.02
    assert 500 < ess[0] < 1100
    assert (rhat[1], ess[1]) == (1.0, 800.0)
    assert rhat[2] > 1.5
    one, _ = rhat_and_ess(draws[:1])
    assert one[0] < 1.02
    few, none = rhat_and_ess(draws[:1, :5])
    assert np.isinf(few[0])
    assert none[0] == 0
    for draw in (draws[:1, :1], draws[:1, :0]):  # a single one never changes, and tells nothing
        rhat, ess = rhat_and_ess(draw)
        assert np.isinf(rhat).all()
        assert (ess == 0).all()
