"""Sampling from a fit: what comes back, that it is right, and that nothing is lost when a run is killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import reference
from numpyro.diagnostics import effective_sample_size

import sbl_ppl as sbl
from sbl_ppl.arviz_io import group
from sbl_ppl.storage import locked

SHORT = {"kernel": "nuts", "num_warmup": 60, "num_samples": 70, "num_chains": 2, "progress": False}


def run(fit, **options):
    """A run too short for its diagnostics, which would warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.SamplingWarning)
        return sbl.sample(fit, **{**SHORT, **options})


def problem(n=20, scale=1.0, **options):
    x = np.linspace(-3.0, 3.0, n)
    t = scale * (2.0 * np.exp(-(x**2)) + 0.3 * np.random.default_rng(2).standard_normal(n))
    return sbl.fit_map(x, t, sbl.Gaussian(1.0, centers=[-2.0, 0.0, 0.5, 2.0]), **options)


@pytest.fixture(scope="module")
def fit():
    return problem()


@pytest.fixture(scope="module")
def post(fit):
    return run(fit)


def same(a, b):
    """Whether two runs are equal in every bit of every group."""
    names = ("posterior", "posterior_predictive", "sample_stats", "log_likelihood", "log_prior")
    return all(group(a, name).equals(group(b, name)) for name in names)


def dense(fit, post, chain=1, draw=30):
    """Design, centred t, precisions and noise of one draw, in the user's units."""
    posterior = group(post, "posterior").isel(chain=chain, draw=draw)
    return fit.design.matrix(), fit.t - fit.offset, posterior["alpha"].values, float(posterior["noise_variance"])


def test_same_seed_same_draws_and_another_seed_others(fit, post):
    assert same(run(fit), post)
    assert not same(run(fit, seed=1), post)


def test_chains_do_not_depend_on_their_number(fit, post):
    three = run(fit, num_chains=3)
    for name in ("posterior", "log_likelihood"):
        assert group(three, name).isel(chain=[0, 1]).equals(group(post, name))
    predicted = [group(data, "posterior_predictive")["t"].values for data in (three, post)]
    np.testing.assert_allclose(predicted[0][:2], predicted[1], rtol=1e-12)


def test_units_do_not_matter(post):
    """Powers of two are exact, so that the same draws must come in other units: alpha in 1 / t^2."""
    other = run(problem(scale=2.0**10))
    here, there = group(post, "posterior"), group(other, "posterior")
    np.testing.assert_array_equal(there["alpha"].values, here["alpha"].values / 2.0**20)
    np.testing.assert_array_equal(there["weights"].values, here["weights"].values * 2.0**10)
    np.testing.assert_array_equal(there["noise_variance"].values, here["noise_variance"].values * 2.0**20)
    np.testing.assert_array_equal(there["gamma"].values, here["gamma"].values)
    shift = group(post, "log_likelihood")["t"].values - group(other, "log_likelihood")["t"].values
    np.testing.assert_allclose(shift, 10 * np.log(2), rtol=1e-12)


def test_what_follows_from_a_draw(fit, post):
    """gamma, degrees of freedom, log likelihood, log joint against dense formulas, in the user's units."""
    _, _, alpha, noise = dense(fit, post)
    Phi, t = reference.contrasts(fit.dictionary.bind(fit.x).matrix(), fit.t)  # what the intercept leaves
    picked = {name: group(post, name).isel(chain=1, draw=30) for name in ("posterior", "sample_stats", "log_prior")}
    Sigma = np.linalg.inv(np.diag(alpha) + Phi.T @ Phi / noise)
    gamma = 1 - alpha * np.diag(Sigma)
    np.testing.assert_allclose(picked["posterior"]["gamma"].values, gamma, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(float(picked["posterior"]["degrees_of_freedom"]), gamma.sum(), rtol=1e-9)
    C = noise * np.eye(len(t)) + Phi / alpha @ Phi.T
    log_likelihood = -0.5 * (len(t) * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + t @ np.linalg.solve(C, t))
    np.testing.assert_allclose(float(picked["sample_stats"]["log_likelihood"]), log_likelihood, rtol=1e-10)
    norm2 = np.sum(Phi**2, 0)
    low, high = np.log(1e-10), np.log(1e10)
    v = np.linspace(low, high, 400_001)
    c, s2 = np.log(len(fit.t)) / 2, noise / fit.scale**2
    log_normaliser = np.log(np.trapezoid(np.exp(-c / (1 + s2 * np.exp(v))), v))
    log_prior = -c / (1 + noise * alpha / norm2) - log_normaliser
    np.testing.assert_allclose(picked["log_prior"]["alpha"].values, log_prior, atol=1e-8)
    g, h = 1e-4, 1e-4 * fit.scale**2
    log_noise = reference.log_inverse_gamma(noise, g, h) + np.log(noise)
    total = log_likelihood + log_prior.sum() + log_noise
    np.testing.assert_allclose(float(picked["sample_stats"]["lp"]), total, rtol=1e-8)


def test_leave_one_out_terms_are_exact(fit, post):
    found = group(post, "log_likelihood")["t"].values[1, 30]
    np.testing.assert_allclose(found, reference.leave_one_out_terms(*dense(fit, post), intercept=True), rtol=1e-8)


def test_wavelets_are_sampled_without_a_matrix():
    """The diagonal form agrees with dense formulas."""
    t = np.repeat([0.0, 3.0, 1.0, -2.0], 4) + 0.1 * np.random.default_rng(0).standard_normal(16)
    fit = sbl.fit_map(None, t, sbl.Wavelet("haar"))
    post = run(fit)
    Phi, centred, alpha, noise = dense(fit, post)
    found = group(post, "log_likelihood")["t"].values[1, 30]
    np.testing.assert_allclose(
        found, reference.leave_one_out_terms(Phi, centred, alpha, noise, intercept=False), rtol=1e-8
    )
    picked = group(post, "posterior").isel(chain=1, draw=30)
    np.testing.assert_allclose(picked["gamma"].values, 1 / (1 + alpha * noise), rtol=1e-10)
    mean, sd = sbl.predict_posterior(fit, post, noise=False)
    noises = group(post, "posterior")["noise_variance"].values.reshape(-1, 1)
    kappa = 1 / (1 + group(post, "posterior")["alpha"].values.reshape(-1, 16) * noises)
    means, variances = kappa * (centred @ Phi) @ Phi.T, (kappa * noises) @ (Phi**2).T
    np.testing.assert_allclose(mean, means.mean(0) + fit.offset, atol=1e-10)
    np.testing.assert_allclose(sd**2, variances.mean(0) + means.var(0), rtol=1e-8)


def test_weights_are_drawn_exactly(fit, post):
    """Standardised by their mean and covariance given each draw they are independent standard normals.

    280 draws of 4 weights: the sum of squares is chi-square of 1120 degrees, its sd 47; 4.5 sds are a false alarm rate
    of 1e-5. The mean has an sd of .03.
    """
    posterior = group(post, "posterior")
    t = fit.t - fit.offset
    Phi = fit.design.matrix()
    each = []
    for chain in range(2):
        for draw in range(70):
            picked = posterior.isel(chain=chain, draw=draw)
            alpha, noise = picked["alpha"].values, float(picked["noise_variance"])
            Sigma = np.linalg.inv(np.diag(alpha) + Phi.T @ Phi / noise)
            L = np.linalg.cholesky(Sigma)
            each.append(np.linalg.solve(L, picked["weights"].values - Sigma @ Phi.T @ t / noise))
    each = np.ravel(each)
    assert abs(np.sum(each**2) - each.size) < 4.5 * np.sqrt(2 * each.size)
    assert abs(np.mean(each)) < 4.5 / np.sqrt(each.size)


def test_predictions_average_over_the_draws(fit, post):
    x_new = np.array([-1.0, 0.3, 2.2])
    mean, sd = sbl.predict_posterior(fit, post, x_new, augment=False)
    values = fit.design.evaluate(x_new, np.arange(4))
    t, Phi = fit.t - fit.offset, fit.design.matrix()
    means, variances, noises = [], [], []
    for chain in range(2):
        for draw in range(70):
            _, _, alpha, noise = dense(fit, post, chain, draw)
            Sigma = np.linalg.inv(np.diag(alpha) + Phi.T @ Phi / noise)
            means.append(values @ Sigma @ Phi.T @ t / noise)
            variances.append(np.diag(values @ Sigma @ values.T) + noise / len(t))  # the intercept's
            noises.append(noise)
    np.testing.assert_allclose(mean, np.mean(means, 0) + fit.offset, rtol=1e-8)
    np.testing.assert_allclose(sd, np.sqrt(np.mean(variances, 0) + np.var(means, 0) + np.mean(noises)), rtol=1e-8)
    _, smooth = sbl.predict_posterior(fit, post, x_new, noise=False, augment=False)
    np.testing.assert_allclose(smooth**2, sd**2 - np.mean(noises), rtol=1e-8)


def test_default_kernel_agrees_with_nuts(fit):
    """Means of log alpha, gamma and log noise: 10 quantities, 4.5 standard errors of both, false alarm rate 7e-5."""
    both = [run(fit, kernel=kernel, num_samples=2000, num_warmup=500) for kernel in (None, "nuts")]
    assert group(both[0], "posterior").attrs["kernel"] == "exchange"
    assert float(group(both[0], "sample_stats")["drift"].max()) < 1e-8
    sides = []
    for post in both:
        posterior = group(post, "posterior")
        values = [np.log(posterior["alpha"].values), posterior["gamma"].values]
        values.append(np.log(posterior["noise_variance"].values)[..., None])
        values = np.concatenate(values, -1)
        sides.append((values.mean((0, 1)), values.var((0, 1)) / effective_sample_size(values)))
    (a, va), (b, vb) = sides
    assert np.all(np.abs(a - b) < 4.5 * np.sqrt(va + vb))


def test_another_prior_may_be_sampled(fit):
    """Jeffreys on [1e-2, 1e2] keeps alpha inside these bounds in the user's units."""
    post = run(fit, prior=sbl.Jeffreys(low=1e-2, high=1e2))
    alpha = group(post, "posterior")["alpha"].values
    assert alpha.min() >= 1e-2
    assert alpha.max() <= 1e2
    assert group(post, "posterior").attrs["prior"] == "Jeffreys(low=0.01, high=100.0)"


def test_ladder_gives_the_same_posterior(fit):
    """Means of log alpha and log noise: 5 quantities, 4.5 standard errors of both, false alarm rate 4e-5."""
    both = [run(fit, kernel="exchange", num_samples=1500, num_warmup=300, tempering=k) for k in (None, 4)]
    assert group(both[1], "sample_stats")["swap_accept_prob"].dims == ("chain", "draw", "rung")
    sides = []
    for post in both:
        posterior = group(post, "posterior")
        parts = [posterior["alpha"].values, posterior["noise_variance"].values[..., None]]
        values = np.log(np.concatenate(parts, -1))
        sides.append((values.mean((0, 1)), values.var((0, 1)) / effective_sample_size(values)))
    (a, va), (b, vb) = sides
    assert np.all(np.abs(a - b) < 4.5 * np.sqrt(va + vb))


@pytest.mark.parametrize("kernel", ["nuts", "exchange"])
def test_fixed_precisions_stay(fit, kernel):
    fixed = np.array([np.nan, 0.37, np.nan, np.nan])
    post = run(fit, kernel=kernel, fixed_alpha=fixed)
    alpha = group(post, "posterior")["alpha"].values
    np.testing.assert_allclose(alpha[..., 1], 0.37, rtol=1e-14)
    assert np.all(np.ptp(alpha[..., [0, 2, 3]], axis=1) > 0)
    assert np.all(group(post, "log_prior")["alpha"].values[..., 1] == 0)


def test_known_noise_is_not_sampled():
    post = run(problem(noise_variance=0.09))
    assert np.ptp(group(post, "posterior")["noise_variance"].values) == 0
    np.testing.assert_allclose(group(post, "posterior")["noise_variance"].values[0, 0], 0.09, rtol=1e-14)


def test_dispersed_starts_are_dispersed(fit):
    """Without warm-up to forget them the first draws of eight chains would lie together around the MAP, or apart."""
    from sbl_ppl.sampling import _start

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.PRNGKey(0), 200)
        starts = {
            name: [_start(fit, fit.problem(), name, np.asarray(key)) for key in keys] for name in ("map", "dispersed")
        }
        alphas = {name: np.array([s["alpha"] for s in each]) for name, each in starts.items()}
        noises = {name: np.array([s["noise_variance"] for s in each]) for name, each in starts.items()}
    kept = fit.active
    assert alphas["dispersed"][:, kept].std() > 2 * alphas["map"][:, kept].std()
    assert noises["dispersed"].std() > 2 * noises["map"].std()
    assert all(np.isfinite(values).all() for values in (*alphas.values(), *noises.values()))


def test_fit_with_everything_pruned_can_be_sampled():
    t = np.random.default_rng(0).standard_normal(16)
    fit = sbl.fit_map(np.arange(16.0), t, sbl.Gaussian(2.0), prior=sbl.Smoothness(20.0))
    assert len(fit.active) == 0
    assert np.isfinite(group(run(fit), "posterior")["alpha"].values).all()


def test_global_precision_stays_and_inside_it_is_double(fit, post):
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32
    assert group(post, "posterior")["alpha"].dtype == np.float64
    _, _, alpha, noise = dense(fit, post)
    exact = reference.log_evidence(*reference.contrasts(fit.dictionary.bind(fit.x).matrix(), fit.t), alpha, noise)
    found = float(group(post, "sample_stats")["log_likelihood"][1, 30])
    assert abs(found - exact) < 1e-10 * abs(exact)  # single precision would miss by 1e-6


def test_precision_set_by_the_user_stays():
    code = (
        "import jax, numpy as np, warnings; jax.config.update('jax_enable_x64', True)\n"
        "import sbl_ppl as sbl\n"
        "x = np.linspace(0, 1, 12); fit = sbl.fit_map(x, np.sin(9 * x), sbl.Gaussian(0.3))\n"
        "warnings.simplefilter('ignore')\n"
        "sbl.sample(fit, 'nuts', num_warmup=50, num_samples=4, num_chains=1, progress=False)\n"
        "assert jax.config.jax_enable_x64"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_stored_run_is_the_same_as_one_in_memory(fit, post, tmp_path):
    assert same(run(fit, path=tmp_path / "run"), post)


@pytest.mark.parametrize("kernel", ["nuts", "exchange"])
def test_resumed_run_is_the_same_bit_for_bit(fit, kernel, tmp_path):
    """Cut at a draw that is no multiple of a round, saved and loaded in between."""
    whole = run(fit, kernel=kernel, num_samples=150)
    run(fit, kernel=kernel, num_samples=63, path=tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    loaded = sbl.MapFit.load(fit.save(tmp_path / "fit.npz"))
    rest = {name: None for name in ("kernel", "num_warmup", "num_chains")}
    resumed = run(loaded, resume=tmp_path / "run", num_samples=150, **rest)
    assert same(resumed, whole)
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert {name: after[name] for name in before} == before, "an older file was touched"


def test_resume_with_nothing_left_to_do_gives_what_is_stored(fit, post, tmp_path):
    run(fit, path=tmp_path / "run")
    count = len(list((tmp_path / "run").iterdir()))
    assert same(run(fit, resume=tmp_path / "run"), post)
    assert len(list((tmp_path / "run").iterdir())) == count


@pytest.fixture(scope="module")
def tiny():
    """The least that takes a step: twelve points, three columns, a noise prior that a ladder can reach."""
    x = np.linspace(-3.0, 3.0, 12)
    t = 2.0 * np.exp(-(x**2)) + 0.3 * np.random.default_rng(2).standard_normal(12)
    return sbl.fit_map(x, t, sbl.Gaussian(1.0, centers=[-2.0, 0.0, 1.0]), noise_prior=(2.0, 0.1))


TINY = {"num_warmup": 60, "num_samples": 60, "num_chains": 1}


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory):
    """A folder with four rounds, two of warm-up, of 50 and 10 steps each; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    run(tiny, path=folder, **TINY)
    return folder


@pytest.fixture
def copied(stored, tmp_path):
    return shutil.copytree(stored, tmp_path / "run")


def again(fit, folder, **options):
    return run(fit, **{**dict.fromkeys(SHORT), "num_samples": 60, "progress": False, "resume": folder, **options})


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ({"kernel": "nuts", "num_warmup": 150}, 100),
        ({"kernel": "exchange", "num_warmup": 800, "tempering": 3}, 200),
    ],
    ids=["nuts", "tempered"],
)
def test_run_cut_in_its_warm_up_is_the_same_bit_for_bit(tiny, options, cut, tmp_path):
    """Where sums of the adaptation have just been set back to zero, the value with which they began."""
    whole = run(tiny, **{**TINY, **options}, path=tmp_path / "whole")
    files = sorted((tmp_path / "whole").glob("round-*"))
    (tmp_path / "cut").mkdir()
    for path in [tmp_path / "whole" / "run.json", *files[: cut // 50]]:
        shutil.copy(path, tmp_path / "cut")
    assert same(again(tiny, tmp_path / "cut"), whole)


def test_round_missing_in_the_middle_is_noticed(tiny, copied):
    (copied / "round-000001.npz").unlink()
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    with pytest.raises(ValueError, match=r"has round-000002\.npz and no round-000001\.npz: put that back"):
        again(tiny, copied, num_samples=120)
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def test_two_do_not_resume_one_run(tiny, copied):
    """While another holds the folder; also in another thread, and not once it is free."""
    before = sorted(os.listdir(copied))
    refused = []

    def other():
        with pytest.raises(ValueError, match=f"{copied} is in use by another process or thread: wait for its end"):
            again(tiny, copied, num_samples=120)
        refused.append(True)

    with locked(copied / "run.json"):
        other()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert refused == [True, True]
    assert sorted(os.listdir(copied)) == before


def test_run_is_held_while_it_runs(tiny, tmp_path, monkeypatch):
    """When the first round is written another call is refused."""
    fsync, said = os.fsync, []

    def meanwhile(number):
        fsync(number)
        if not said and (tmp_path / "run" / "run.json").exists():
            said.append("refused")
            with pytest.raises(ValueError, match="is in use by another process or thread"):
                again(tiny, tmp_path / "run", num_samples=10)

    monkeypatch.setattr(os, "fsync", meanwhile)
    run(tiny, path=tmp_path / "run", **TINY)
    assert said == ["refused"]
    with locked(tmp_path / "run" / "run.json"):  # free again
        pass


def test_tuples_and_numbers_of_numpy_among_the_options_are_stored(tiny, tmp_path):
    """NUTS takes the blocks of its mass matrix as tuples, and no lists."""
    options = {"dense_mass": [("alpha",)], "max_tree_depth": np.int64(5)}
    whole = run(tiny, **{**TINY, "num_samples": 20}, kernel_options=options)
    run(tiny, **{**TINY, "num_samples": 10}, kernel_options=options, path=tmp_path / "run")
    assert same(again(tiny, tmp_path / "run", num_samples=20, kernel_options=options), whole)
    with pytest.raises(ValueError, match=r"kernel_options=.* differs from the stored run's"):
        again(tiny, tmp_path / "run", kernel_options={"dense_mass": True})


def test_refused_call_leaves_no_folder(tiny, tmp_path):
    """Refused as late as possible: by NUTS, when it meets the model. And as an option that no file can hold."""
    with pytest.raises(Exception, match="nonsense"):
        run(tiny, **TINY, kernel_options={"dense_mass": [("nonsense",)]}, path=tmp_path / "run")
    with pytest.raises(ValueError, match="cannot be stored"):
        run(tiny, **TINY, kernel_options={"init_strategy": print}, path=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_remains_of_a_kill_are_removed(tiny, copied):
    (copied / "round-000004.npz.0123.part").write_bytes(b"half")
    again(tiny, copied)
    assert not list(copied.glob("*.part"))


def with_settings(folder, **changes):
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps({**record, **changes}), encoding="utf-8")


SETTINGS = {
    "no json": lambda folder: (folder / "run.json").write_bytes(b"\x00\xff"),
    "deep json": lambda folder: (folder / "run.json").write_text("[" * 100_000),
    "a list": lambda folder: (folder / "run.json").write_text("[]"),
    "empty": lambda folder: (folder / "run.json").write_text("{}"),
    "older": lambda folder: with_settings(folder, format=1),
    "kernel": lambda folder: with_settings(folder, kernel="gibbs"),
    "chains": lambda folder: with_settings(folder, num_chains=0.5),
    "prior": lambda folder: with_settings(folder, prior={"type": "annotations", "config": {}}),
    "more": lambda folder: with_settings(folder, nonsense=1),
    "missing": lambda folder: (folder / "run.json").write_text('{"format": 2, "seed": 0}'),
}


@pytest.mark.parametrize("change", SETTINGS.values(), ids=SETTINGS)
def test_damaged_settings_are_one_clear_error(tiny, copied, change):
    change(copied)
    with pytest.raises(ValueError, match=r"run\.json cannot be read as the settings of a stored run: ."):
        again(tiny, copied)


def damaged_rounds(folder):
    """Each a name and contents that cannot be there."""
    last = folder / "round-000003.npz"
    with np.load(last) as file:
        arrays = dict(file)
    yield last.read_bytes()[:300]
    yield (folder / "round-000002.npz").read_bytes()
    states = sum(name.startswith("state.") for name in arrays)
    for changed in (
        {"draws.alpha": arrays["draws.alpha"] * np.nan},
        {"draws.alpha": arrays["draws.alpha"][:, :4]},
        {"draws.alpha": arrays["draws.alpha"].astype(str)},
        {"state.0": arrays["state.0"].astype(complex)},
        {f"state.{states - 1}": np.zeros(7)},
        {f"state.{states}": np.zeros(1)},
        {"warmed": np.zeros(2)},
        {"count": arrays["count"] + 1},
    ):
        np.savez(last, **{**arrays, **changed})
        yield last.read_bytes()


def test_damaged_rounds_are_one_clear_error(tiny, copied, monkeypatch):
    """One after the other; compiled code does not matter here, so that nothing is compiled."""
    from sbl_ppl import sampling

    compile_ = sampling._Chains.compile

    def only_shapes(self, state):
        monkeypatch.setattr(jax.stages.Lowered, "compile", lambda _: None)
        compile_(self, state)

    monkeypatch.setattr(sampling._Chains, "compile", only_shapes)
    for content in list(damaged_rounds(copied)):
        (copied / "round-000003.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"round-000003\.npz cannot be read as round 3 of a stored run: ."):
            again(tiny, copied)


def test_fingerprint_is_of_the_columns_themselves(tmp_path):
    """Small whole numbers, so that sums are exact: two rows with the same t are swapped in one column."""
    t = np.array([1.0, 1.0, -2.0, 4.0, 0.0, 3.0, -1.0, 2.0])
    Phi = np.random.default_rng(0).integers(-3, 4, (8, 3)).astype(float)
    other = Phi.copy()
    other[:2, 1] = Phi[1::-1, 1]
    assert not np.array_equal(other.T @ other, Phi.T @ Phi)
    np.testing.assert_array_equal(other.T @ t, Phi.T @ t)
    fits = [sbl.fit_map(None, t, sbl.Columns(matrix), center=False) for matrix in (Phi, other)]
    run(fits[0], **{**TINY, "num_samples": 10}, path=tmp_path / "run")
    with pytest.raises(ValueError, match="other data or another dictionary"):
        again(fits[1], tmp_path / "run", num_samples=20)


def test_fingerprint_of_a_wavelet_needs_no_matrix():
    """Which would take 2 GB."""
    from sbl_ppl.sampling import _fingerprint

    t = np.repeat([0.0, 3.0, 1.0, -2.0], 4096) + 0.1 * np.random.default_rng(0).standard_normal(16384)
    fits = [sbl.fit_map(None, t, sbl.Wavelet(name) + sbl.Bias()) for name in ("haar", "db2")]
    tracemalloc.start()
    found = {_fingerprint(fit) for fit in fits}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 2
    assert peak < 10_000_000


KILLED = """
import sys, warnings
import sbl_ppl as sbl
warnings.simplefilter("ignore")
fit = sbl.MapFit.load(sys.argv[1])
sbl.sample(fit, "nuts", num_warmup=60, num_samples=1_000_000, num_chains=2, progress=False, path=sys.argv[2])
"""


@pytest.mark.slow
def test_kill_loses_at_most_the_last_round(fit, tmp_path):
    """Killed outright while it writes round after round; what is there resumes to the draws of an unhurt run."""
    saved, folder = fit.save(tmp_path / "fit.npz"), tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(saved), str(folder)])
    while len(list(folder.glob("round-*.npz"))) < 5:
        assert process.poll() is None
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for path in folder.glob("round-*.npz"):
        np.load(path).close()
    # two rounds of warm-up, and at least three of draws
    assert same(run(fit, resume=folder, num_samples=200), run(fit, num_samples=200))


def test_interrupted_write_leaves_no_trace(fit, tmp_path, monkeypatch):
    run(fit, num_samples=50, path=tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").iterdir())

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        run(fit, num_samples=100, resume=tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_chains_that_did_not_mix_are_reported(fit):
    with pytest.warns(sbl.SamplingWarning) as caught:
        sbl.sample(fit, "nuts", num_warmup=50, num_samples=20, num_chains=2, progress=False)
    said = next(str(warning.message) for warning in caught if "have not mixed" in str(warning.message))
    assert re.search(r'R-hat .* smallest effective sample size .*try kernel="exchange"', said)


def test_divergences_are_reported(fit):
    """A step size held at a hundred times what is stable diverges."""
    options = {"step_size": 30.0, "adapt_step_size": False}
    with pytest.warns(sbl.SamplingWarning) as caught:
        sbl.sample(fit, "nuts", num_warmup=50, num_samples=50, num_chains=2, progress=False, kernel_options=options)
    assert any("divergent transitions" in str(warning.message) for warning in caught)


def test_posterior_that_left_the_map_is_reported(fit):
    """Per d alpha up to 1e8 the mass near `high` counts each component out by about log(high / knee) nats."""
    fit = sbl.fit_map(fit.x, fit.t - fit.offset, fit.dictionary, center=False)
    assert fit.degrees_of_freedom > 2
    prior = sbl.Flat(measure="alpha", high=1e12)
    with pytest.warns(sbl.SamplingWarning) as caught:
        sbl.sample(fit, "nuts", prior=prior, num_warmup=500, num_samples=100, num_chains=2, progress=False)
    assert any("has left the components of the MAP" in str(warning.message) for warning in caught)


def test_progress_bar_is_silent_without_a_terminal(fit, capfd):
    run(fit, num_samples=10, progress=True)
    assert capfd.readouterr() == ("", "")


BAD = {
    "fit": (dict(fit="no fit"), "fit must be a MapFit"),
    "kernel": (dict(kernel="gibbs"), "kernel='gibbs' is unknown"),
    "start": (dict(start="here"), "start='here' is unknown"),
    "prior": (dict(prior="BIC"), "prior must be a Prior"),
    "chains": (dict(num_chains=0), "num_chains=0"),
    "samples": (dict(num_samples=2.5), "num_samples=2.5"),
    "warmup": (dict(num_warmup=-3), "num_warmup=-3"),
    "thin": (dict(thin=0), "thin=0"),
    "seed": (dict(seed=-1), "seed=-1"),
    "options": (dict(kernel_options={"nonsense": 1}), "kernel_options=.*nonsense"),
    "options type": (dict(kernel_options=3), "kernel_options=3"),
    "fixed": (dict(fixed_alpha=[1.0, 2.0]), "fixed_alpha must hold 4 numbers"),
    "all fixed": (dict(fixed_alpha=[1.0] * 4), "fixed_alpha leaves no precision"),
    "ladder": (dict(kernel="exchange", tempering=[0.5, 1.0]), "tempering=.* must be a number of rungs"),
    "ladder of NUTS": (dict(tempering=4), "leave out kernel='nuts'"),
    "no run": (dict(resume="nowhere"), "resume=nowhere holds no stored run"),
    "both": (dict(resume="a", path="b"), "give one of the two"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_before_any_work(fit, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        sbl.sample(**{"fit": fit, **SHORT, **options})
    assert not list(tmp_path.iterdir())


def test_bad_options_make_no_folder(fit, tmp_path):
    with pytest.raises(ValueError, match="nonsense"):
        run(fit, kernel_options={"nonsense": 1}, path=tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("prior", "expected"), [((2.0, 1e-5), 4), ((1e-4, 1.0), [1.0, 0.02])], ids=["proper", "wide"])
def test_ladder_reaches_a_prior_that_can_be_drawn_from(prior, expected):
    """Whether it can does not depend on the units of h."""
    from sbl_ppl.sampling import _ladder_of

    found = _ladder_of(4, problem(noise_prior=prior))
    assert found == expected if isinstance(expected, int) else [found[0], found[-1]] == pytest.approx(expected)


def test_stored_run_is_not_overwritten_nor_continued_by_another(fit, tmp_path):
    run(fit, path=tmp_path / "run", num_samples=10)
    with pytest.raises(ValueError, match="exists already"):
        run(fit, path=tmp_path / "run")
    with pytest.raises(ValueError, match="seed=3 differs from the stored run's 0"):
        run(fit, resume=tmp_path / "run", seed=3)
    with pytest.raises(ValueError, match="other data or another dictionary"):
        run(problem(scale=1.1), resume=tmp_path / "run")


@pytest.mark.parametrize("chains", [1, 2])
def test_one_draw_is_a_run(fit, chains):
    options = {"num_warmup": 2, "num_samples": 1, "num_chains": chains, "progress": False}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        post = sbl.sample(fit, **options)
    assert any("have not mixed: R-hat inf" in str(each.message) for each in told)
    assert group(post, "posterior")["alpha"].shape == (chains, 1, 4)
    mean, sd = sbl.predict_posterior(fit, post)
    assert np.isfinite(mean).all()
    assert (sd > 0).all()
    with pytest.raises(ValueError, match="post has 1 draws a chain, and leave-one-out needs at least 4"):
        sbl.compare(fit, post)


def test_fixed_precisions_of_a_series_count_by_place(fit):
    fixed = [np.nan, 3.0, np.nan, 7.0]
    series = pd.Series(fixed, index=[3, 2, 1, 0])  # whose labels mean nothing here
    short = {"num_warmup": 5, "num_samples": 4, "num_chains": 1}
    post = run(fit, fixed_alpha=series, **short)
    np.testing.assert_allclose(group(post, "posterior")["alpha"][..., [1, 3]], [[[3.0, 7.0]] * 4], rtol=1e-12)
    assert same(post, run(fit, fixed_alpha=fixed, **short))


@pytest.mark.parametrize(
    ("kernel", "options", "plain"),
    [
        ("nuts", {"max_tree_depth": (np.int64(3), 2)}, {"max_tree_depth": (3, 2)}),
        ("nuts", {"dense_mass": [("alpha", "noise_variance")]}, {"dense_mass": [("alpha", "noise_variance")]}),
        ("nuts", {"target_accept_prob": np.float64(0.9)}, {"target_accept_prob": 0.9}),
        ("exchange", {"num_exchanges": np.int32(2)}, {"num_exchanges": 2}),
    ],
    ids=["tuple", "list of tuples", "float64", "int32"],
)
def test_kernel_options_may_be_tuples_and_numpy_numbers(fit, kernel, options, plain, tmp_path):
    """They are stored, found again, and mean the same as numbers of Python."""
    short = {"kernel": kernel, "num_warmup": 10, "num_chains": 1}
    whole = run(fit, num_samples=8, kernel_options=plain, **short)
    run(fit, num_samples=4, kernel_options=options, path=tmp_path / "run", **short)
    again = run(fit, num_samples=8, kernel_options=options, resume=tmp_path / "run", **short)
    assert same(again, whole)


def test_kernel_options_that_cannot_be_stored_make_no_folder(fit, tmp_path):
    options = {"init_strategy": lambda site: None}
    with pytest.raises(ValueError, match=r"kernel_options: .* cannot be stored.*leave out path"):
        run(fit, kernel_options=options, path=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_seeds_may_be_numpy_integers(fit):
    short = {"num_warmup": 2, "num_samples": 2, "num_chains": 1}
    assert same(run(fit, seed=np.int64(5), **short), run(fit, seed=5, **short))
    run(fit, seed=2**63 - 1, **short)


def test_thinning_keeps_every_third(fit):
    every, third = run(fit, num_samples=60), run(fit, num_samples=20, thin=3)
    kept = group(every, "posterior")["alpha"].values[:, 2::3]
    np.testing.assert_array_equal(group(third, "posterior")["alpha"].values, kept)


@pytest.mark.slow
def test_sixty_four_kernels_under_jeffreys_mix():
    """2 chains of 1000 kept draws, every third of NUTS; of independent ones the largest R-hat is 1.002 to 1.005."""
    data = sbl.datasets.sinc(64, snr=5.0)
    fit = sbl.fit_map(data.x, data.t, sbl.Gaussian(3.0))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # R-hat above 1.01, an effective sample size below 400, or a divergence
        sbl.sample(fit, "nuts", prior=sbl.Jeffreys(low=1e-4, high=1e4), num_chains=2, num_samples=1000, thin=3)
    assert time.perf_counter() - begin < 120
