"""The atlas of maxima: against brute force on small problems, on workers that die, and what its methods promise."""

import dataclasses
import itertools
import json
import os
import pickle
import signal
import threading
import time
import warnings
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import reference
from scipy import ndimage, optimize

import sbl_ppl as sbl
from sbl_ppl import arviz_io
from sbl_ppl.maxima import BasinMass, MaximaAtlas, explore_maxima


def brute_force_maxima(Phi, t, noise_variance, c, num=25):
    """(height, log alpha) of every local maximum: the peaks of a grid in log alpha, inf included, each refined."""
    norm2, m = (Phi**2).sum(axis=0), Phi.shape[1]

    def height(logs):
        alpha = np.exp(np.asarray(logs, float))
        return reference.log_evidence(Phi, t, alpha, noise_variance) - np.sum(c / (1 + noise_variance * alpha / norm2))

    axis = np.append(np.linspace(-9.0, 9.0, num), np.inf)
    table = np.array([height(point) for point in itertools.product(axis, repeat=m)]).reshape((num + 1,) * m)
    peaks = np.argwhere(table == ndimage.maximum_filter(table, size=3, mode="constant", cval=-np.inf))
    found = []
    for peak in peaks:
        logs = axis[peak].copy()
        free = np.isfinite(logs)

        def fall(values, logs=logs, free=free):
            point = logs.copy()
            point[free] = values
            return -height(point)

        if free.any():
            options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000}
            logs[free] = optimize.minimize(fall, logs[free], method="Nelder-Mead", options=options).x
        logs[logs > 15.0] = np.inf
        if not any(np.allclose(np.exp(-logs), np.exp(-other), atol=1e-4) for _, other in found):
            found.append((height(logs), logs))
    return sorted(found, key=lambda pair: -pair[0])


def rivals(seed=6):
    """Three columns, the third nearly the sum of the others: it alone is one maximum, the two together another."""
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((6, 3))
    Phi[:, 2] = Phi[:, 0] + Phi[:, 1] + 0.3 * rng.standard_normal(6)
    return Phi, Phi[:, :2] @ [2.0, 2.0] + 0.5 * rng.standard_normal(6)


KNOWN = {"noise_variance": 0.5, "center": False, "prior": sbl.Smoothness(1.0), "progress": False}


@pytest.fixture(scope="module")
def two():
    Phi, t = rivals()
    return explore_maxima(None, t, sbl.Columns(Phi), restarts=60, **KNOWN)


def kernels():
    data = sbl.datasets.sinc(50, noise_sd=0.1, seed=1)
    return data.x, data.t, sbl.Gaussian(2.0)


@pytest.fixture(scope="module")
def many():
    return explore_maxima(*kernels(), restarts=24, seed=3, progress=False)


def assert_same_atlas(first, second, rtol=0.0):
    """The same restarts, maxima and counts; numbers to the last digit, or to `rtol` where BLAS threads differ."""
    assert len(first) == len(second)
    for name, values in first.restarts.items():
        compare = np.testing.assert_allclose if values.dtype.kind == "f" else np.testing.assert_array_equal
        compare(second.restarts[name], values, err_msg=name, **({"rtol": rtol} if values.dtype.kind == "f" else {}))
    for one, other in zip(first.maxima, second.maxima, strict=True):
        assert (one.found, one.first) == (other.found, other.first)
        np.testing.assert_array_equal(one.fit.active, other.fit.active)
        np.testing.assert_allclose(one.fit.alpha, other.fit.alpha, rtol=rtol)
        size = rtol * np.abs(one.fit.covariance).max(initial=0.0)
        np.testing.assert_allclose(one.fit.covariance, other.fit.covariance, rtol=0, atol=size)
        np.testing.assert_allclose(one.fit.noise_variance, other.fit.noise_variance, rtol=rtol)
        np.testing.assert_allclose(one.log_posterior, other.log_posterior, rtol=rtol)


# --- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 6, 9])
def test_both_maxima_of_a_built_problem_are_found_and_no_third(seed):
    Phi, t = rivals(seed)
    expected = brute_force_maxima(Phi, t, 0.5, 1.0)
    assert len(expected) == 2
    atlas = explore_maxima(None, t, sbl.Columns(Phi), restarts=60, **KNOWN)
    assert len(atlas) == 2
    assert atlas.found.sum() == 60
    for (height, logs), maximum in zip(expected, atlas.maxima, strict=True):
        assert maximum.objective == pytest.approx(height, abs=1e-6)
        np.testing.assert_array_equal(maximum.fit.active, np.flatnonzero(np.isfinite(logs)))
        np.testing.assert_allclose(np.log(maximum.fit.alpha), logs[np.isfinite(logs)], atol=1e-3)


def test_maxima_pass_the_test_of_a_maximum(many):
    """By finite differences of the dense formula in (log alpha, log noise), and by trying each other column."""
    x, t, dictionary = kernels()
    c, h = np.log(len(t)) / 2, 1e-4 * t.var()
    Phi, t = reference.contrasts(dictionary.bind(x).matrix(), t)
    norm2 = (Phi**2).sum(axis=0)

    def height(point, kept):
        alpha, v = np.full(Phi.shape[1], np.inf), np.exp(point[-1])
        alpha[kept] = np.exp(point[:-1])
        kappa = 1 / (1 + v * alpha[kept] / norm2[kept])
        return reference.log_evidence(Phi, t, alpha, v) - c * kappa.sum() - 1.0001 * np.log(v) - h / v

    assert len(many) > 1
    for maximum in many.maxima[:3]:
        fit = maximum.fit
        point = np.log(np.append(fit.alpha, fit.noise_variance))
        here = height(point, fit.active)
        slope = reference.finite_difference(lambda p, fit=fit: height(p, fit.active), point)
        hessian = reference.finite_difference_hessian(lambda p, fit=fit: height(p, fit.active), point)
        assert np.abs(slope).max() < 1e-4
        assert maximum.curvature == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-2, abs=1e-6)
        assert maximum.curvature < 0
        for m in np.setdiff1d(np.arange(Phi.shape[1]), fit.active)[::5]:
            more = np.append(fit.active, m)
            heights = [height(np.insert(point, -1, v), more) for v in np.linspace(-4, 8, 7)]
            assert max(heights) < here + 1e-6


def test_heights_differ_as_the_objective_of_the_search(many):
    for maximum in many.maxima:
        assert maximum.objective == pytest.approx(maximum.fit.history[-1], abs=1e-6)
        assert maximum.curve == pytest.approx(maximum.fit.predict(augment=False)[0])
    assert (np.diff(many.objective) <= 1e-5).all()
    assert many.found.sum() == (many.restarts["maximum"] >= 0).sum()


def test_the_saddle_is_recognised_and_left():
    """FT02 result III (docs/errata.md): at alpha = (1, 1) no single change gains and the gradient is 0."""
    Phi = np.array([[np.sqrt(2.0), -np.sqrt(2.0)], [np.sqrt(0.125), np.sqrt(0.125)]])
    t = np.array([0.0, 2.5])
    options = {"prior": sbl.Flat(), "noise_variance": 1.0, "center": False, "progress": False}
    fit = sbl.fit_map(None, t, sbl.Columns(Phi), **options)
    there = dataclasses.replace(fit, active=np.arange(2), alpha=np.ones(2))
    atlas = explore_maxima(None, t, sbl.Columns(Phi), restarts=40, given=[there], **options)
    np.testing.assert_array_equal(atlas.restarts["kind"][:2], ["greedy", "given"])
    assert atlas.restarts["saddles"][1] == 1
    assert atlas.saddles >= 1
    assert f"saddles left: {atlas.saddles}" in repr(atlas)
    expected = brute_force_maxima(Phi, t, 1.0, 0.0, num=33)
    np.testing.assert_allclose(atlas.objective, [height for height, _ in expected], atol=1e-6)
    at_saddle = reference.log_evidence(Phi, t, np.ones(2), 1.0)
    assert atlas.restarts["objective"][1] > at_saddle + 1e-3


@pytest.mark.parametrize("prior", [sbl.Flat(), sbl.Smoothness("BIC")], ids=["flat", "bic"])
def test_orthonormal_columns_with_known_noise_have_one_maximum(prior):
    rng = np.random.default_rng(4)
    x = np.arange(32.0)
    t = np.where(x < 12, 2.0, -1.0) + 0.4 * rng.standard_normal(32)
    options = {"prior": prior, "noise_variance": 0.16, "progress": False}
    atlas = explore_maxima(x, t, sbl.Wavelet("haar"), restarts=100, **options)
    assert len(atlas) == 1
    assert atlas.best.found == 100
    z = reference.wavelet_matrix("haar", 32, 5).T @ (t - t.mean())
    c = 0.0 if isinstance(prior, sbl.Flat) else np.log(32) / 2
    assert atlas.best.size == (z**2 / 0.16 > 1 + 2 * c).sum()


@pytest.mark.parametrize("prior", [sbl.Flat(), sbl.Smoothness("BIC")], ids=["flat", "bic"])
def test_identical_columns_are_one_maximum(prior):
    """T01 section 2.2: with two identical columns the mode is a ridge on which 1/alpha_i + 1/alpha_j is constant."""
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((20, 3))
    t = Phi @ [2.0, 0.0, -1.0] + 0.3 * rng.standard_normal(20)
    doubled = np.column_stack([Phi, Phi[:, 0], -2.0 * Phi[:, 2]])
    plain = explore_maxima(None, t, sbl.Columns(Phi), prior, restarts=10, center=False, progress=False)
    atlas = explore_maxima(None, t, sbl.Columns(doubled), prior, restarts=40, center=False, progress=False)
    assert len(plain) == len(atlas) == 1
    assert atlas.best.objective == pytest.approx(plain.best.objective, abs=1e-5)
    np.testing.assert_allclose(atlas.best.curve, plain.best.curve, atol=1e-5)


def test_the_ridge_itself_is_merged():
    """Points along the ridge, given as starts, stay where they are and are still one maximum."""
    rng = np.random.default_rng(0)
    column = rng.standard_normal(20)
    t = 2.0 * column + 0.3 * rng.standard_normal(20)
    Phi, options = np.column_stack([column, column]), {"prior": sbl.Flat(), "center": False, "progress": False}
    single = sbl.fit_map(None, t, sbl.Columns(column[:, None]), **options)
    some = sbl.fit_map(None, t, sbl.Columns(Phi), **options)
    alphas = [single.alpha[0] / np.array([share, 1 - share]) for share in (0.2, 0.5, 0.7)]
    ridge = [
        dataclasses.replace(some, active=np.arange(2), alpha=a, noise_variance=single.noise_variance) for a in alphas
    ]
    atlas = explore_maxima(None, t, sbl.Columns(Phi), restarts=8, given=ridge, **options)
    assert (atlas.restarts["size"][1:4] == 2).all()
    assert len(atlas) == 1
    assert atlas.best.found == 11


def test_an_overfit_is_no_maximum():
    rng = np.random.default_rng(1)
    options = {"prior": sbl.Flat(), "restarts": 5, "progress": False}
    with pytest.warns(sbl.ConvergenceWarning, match=r"no restart ended at a maximum: overfitting"):
        atlas = explore_maxima(None, rng.standard_normal(32), sbl.Wavelet("haar"), **options)
    assert len(atlas) == 0
    assert (atlas.restarts["maximum"] == -1).all()
    assert "0 maxima" in repr(atlas)
    assert atlas.distances().shape == atlas.distances("support").shape == (0, 0)
    with pytest.raises(ValueError, match="the atlas is empty"):
        _ = atlas.best


def test_a_constant_target_has_the_empty_model():
    atlas = explore_maxima(np.arange(12.0), np.full(12, 3.0), sbl.Gaussian(2.0), restarts=5, progress=False)
    assert all(maximum.size == 0 for maximum in atlas.maxima)


# --- where it runs ---------------------------------------------------------------------------------------------------


def test_the_seed_decides():
    x, t, dictionary = kernels()
    again = explore_maxima(x, t, dictionary, restarts=8, seed=3, progress=False)
    assert_same_atlas(again, explore_maxima(x, t, dictionary, restarts=8, seed=3, progress=False))
    other = explore_maxima(x, t, dictionary, restarts=8, seed=4, progress=False)
    assert not np.array_equal(again.restarts["objective"], other.restarts["objective"])


def test_more_restarts_begin_with_the_fewer(many):
    few = explore_maxima(*kernels(), restarts=9, seed=3, progress=False)
    np.testing.assert_array_equal(few.restarts["objective"], many.restarts["objective"][:9])


@pytest.mark.parametrize("exchange", [True, False])
def test_exchange_moves_can_be_had_or_not(exchange):
    atlas = explore_maxima(*kernels(), restarts=5, exchange=exchange, starts=["column"], progress=False)
    assert (atlas.restarts["exchange"] == exchange).all()
    assert (atlas.restarts["kind"][1:] == "column").all()


def test_threads_give_the_same(many):
    with ThreadPoolExecutor(2) as pool:
        assert_same_atlas(many, explore_maxima(*kernels(), restarts=24, seed=3, executor=pool, progress=False))


def test_processes_give_the_same_and_one_may_die(many):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert_same_atlas(many, explore_maxima(*kernels(), restarts=24, seed=3, executor=pool, progress=False))
        os.kill(pool.submit(os.getpid).result(), signal.SIGKILL)  # the pool is broken from here on
        assert_same_atlas(many, explore_maxima(*kernels(), restarts=24, seed=3, executor=pool, progress=False))


class Forgetful(ThreadPoolExecutor):
    """Cancels the first of its tasks, as a cluster does that has lost them."""

    def __init__(self, losses):
        super().__init__(1)
        self.losses = losses

    def submit(self, function, *args):
        future = super().submit(function, *args) if self.losses <= 0 else type(super().submit(int))()
        if self.losses > 0:
            self.losses -= 1
            future.cancel()
            future.set_running_or_notify_cancel()
        return future


def test_lost_tasks_are_run_again(many):
    with Forgetful(30) as pool:
        assert_same_atlas(many, explore_maxima(*kernels(), restarts=24, seed=3, executor=pool, progress=False))


def test_workers_that_keep_dying_are_reported():
    with Forgetful(10**6) as pool, pytest.raises(RuntimeError, match=r"died 5 times: look at their memory"):
        explore_maxima(*kernels(), restarts=3, executor=pool, progress=False)


def test_an_interrupt_keeps_the_restarts_that_have_ended(many, monkeypatch):
    """Restart k draws from (seed, k): the seventh is where Ctrl-C is pressed."""
    make = np.random.default_rng

    def press(seed=None):
        if np.ndim(seed) and seed[1] == 7:
            raise KeyboardInterrupt
        return make(seed)

    monkeypatch.setattr(np.random, "default_rng", press)
    with pytest.warns(sbl.ConvergenceWarning, match=r"interrupted: the atlas holds 7 of 24 restarts"):
        atlas = explore_maxima(*kernels(), restarts=24, seed=3, progress=False)
    monkeypatch.undo()
    assert_same_atlas(explore_maxima(*kernels(), restarts=7, seed=3, progress=False), atlas)
    np.testing.assert_array_equal(atlas.restarts["objective"], many.restarts["objective"][:7])


class Interrupted(ThreadPoolExecutor):
    """Runs all tasks but the fifth at once; that one, like a worker that Ctrl-C reaches, fails."""

    def __init__(self):
        super().__init__(1)
        self.count = 0

    def submit(self, function, *args):
        future = Future()
        self.count += 1
        if self.count == 5:
            future.set_exception(KeyboardInterrupt())
        else:
            future.set_result(function(*args))
        return future


def test_an_interrupt_keeps_what_workers_have_ended(many):
    with Interrupted() as pool, pytest.warns(sbl.ConvergenceWarning, match=r"holds 23 of 24 restarts"):
        atlas = explore_maxima(*kernels(), restarts=24, seed=3, executor=pool, progress=False)
    np.testing.assert_array_equal(atlas.restarts["objective"], np.delete(many.restarts["objective"], 5))


def test_an_interrupt_of_the_mass_is_not_caught(many):
    with Interrupted() as pool, pytest.raises(KeyboardInterrupt):
        many.mass(many.to_arviz(), executor=pool, progress=False)


def test_two_threads_leave_the_warnings_alone():
    """The first enters before the second and leaves before it: were filters saved and put back, the second's stay."""
    both_in, first_out = threading.Barrier(2), threading.Event()
    seen = threading.local()

    def columns(x):
        if not hasattr(seen, "here"):
            seen.here = both_in.wait(30)
            if threading.current_thread().name == "second":
                assert first_out.wait(30)
        return np.stack([x, x**2], axis=1)

    def explore():
        x = np.linspace(-1, 1, 12)
        explore_maxima(x, x + 0.1 * np.cos(9 * x), sbl.Custom(columns), restarts=2, progress=False)
        if threading.current_thread().name == "first":
            first_out.set()

    def second():
        while not both_in.n_waiting:  # the first is in
            time.sleep(0.001)
        explore()

    before = list(warnings.filters)
    threads = [threading.Thread(target=explore, name="first"), threading.Thread(target=second, name="second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after, warnings.filters[:] = list(warnings.filters), before
    assert after == before


def blocks_sinc(c="BIC"):
    data = sbl.datasets.blocks_sinc(256, snr=7.0)
    return data.x, data.t, sbl.Wavelet("haar") + sbl.ThinPlateSpline(3.0), sbl.Smoothness(c)


@pytest.mark.slow
def test_a_dask_cluster_that_loses_a_worker_gives_the_same():
    distributed = pytest.importorskip("distributed")
    import dask

    problem, options = blocks_sinc(), {"restarts": 40, "seed": 1, "progress": False}
    serial = explore_maxima(*problem, **options)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),  # else Dask itself would try again
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        before, done = set(client.run(os.getpid).values()), []
        victim = min(before)

        def kill():
            while sum(client.nthreads().values()) and not any(client.processing().values()):
                time.sleep(0.02)
            time.sleep(0.3)
            os.kill(victim, signal.SIGKILL)
            done.append(time.perf_counter())

        killer = threading.Thread(target=kill)
        killer.start()
        atlas = explore_maxima(*problem, executor=client.get_executor(), **options)
        finished = time.perf_counter()
        killer.join()
        assert done[0] < finished, "the worker was killed too late to matter"
        client.wait_for_workers(2)
        assert victim not in set(client.run(os.getpid).values())
    assert_same_atlas(serial, atlas, rtol=1e-5)  # Dask gives its workers one BLAS thread


@pytest.mark.slow
def test_hundred_restarts_of_blocks_sinc_within_a_minute():
    x, t, dictionary, prior = blocks_sinc("RIC")
    greedy = sbl.fit_map(x, t, dictionary, prior)
    begin = time.perf_counter()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        atlas = explore_maxima(x, t, dictionary, prior, restarts=100, executor=pool, progress=False)
    assert time.perf_counter() - begin < 60
    assert atlas.best.objective >= greedy.history[-1] - 1e-6
    assert atlas.best.log_posterior >= greedy.log_posterior - 1e-6
    assert (atlas.restarts["maximum"] >= 0).all()


# --- distances and lines ---------------------------------------------------------------------------------------------


def test_distances_by_curve(many):
    distance, (first, second) = many.distances(), many.maxima[:2]
    rms = np.sqrt(np.mean((first.fit.curve() - second.fit.curve()) ** 2))
    assert distance[0, 1] == pytest.approx(rms / np.sqrt((first.noise_variance + second.noise_variance) / 2))
    np.testing.assert_allclose(distance, distance.T)
    np.testing.assert_array_equal(distance.diagonal(), 0.0)


def test_distances_by_support(two):
    Phi, _ = rivals()
    distance = two.distances("support")
    unit = Phi / np.linalg.norm(Phi, axis=0)
    correlation = np.abs(unit.T @ unit)
    alone, pair = (maximum.fit.active for maximum in two.maxima)
    likeness = correlation[np.ix_(alone, pair)]
    expected = 1 - (likeness.max(axis=1).sum() + likeness.max(axis=0).sum()) / 3
    assert distance[0, 1] == pytest.approx(expected)
    np.testing.assert_allclose(distance.diagonal(), 0.0, atol=1e-12)


def test_clusters(many):
    assert (many.clusters(1e9) == 0).all()
    assert len(np.unique(many.clusters(1e-9))) == len(many)
    assert many.clusters()[0] == 0


def test_line_between_two_maxima(two):
    Phi, t = rivals()
    line = two.line(0, 1, points=9)
    norm2 = (Phi**2).sum(axis=0)
    high = 1e10 * norm2 / np.mean(t**2)  # the default bound, without centering
    ends = [high.copy(), high.copy()]
    for end, maximum in zip(ends, two.maxima, strict=True):
        end[maximum.fit.active] = maximum.fit.alpha
    for share, height in zip(line.position, line.objective, strict=True):
        alpha = np.exp((1 - share) * np.log(ends[0]) + share * np.log(ends[1]))
        expected = reference.log_evidence(Phi, t, alpha, 0.5) - np.sum(1.0 / (1 + 0.5 * alpha / norm2))
        assert height == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(line.objective[[0, -1]], two.objective, atol=1e-6)
    assert line.barrier == pytest.approx(two.objective[1] - line.objective.min(), abs=1e-6)
    assert line.barrier > 0
    assert two.barriers().shape == (2, 2)
    assert two.barriers()[0, 1] >= line.barrier
    near = two.line(0, 1, absent=0.01)
    assert 0 < near.barrier < line.barrier
    assert (near.objective[[0, -1]] < two.objective).all()
    np.testing.assert_allclose(near.objective[[0, -1]], two.objective, atol=0.2)


# --- posterior mass --------------------------------------------------------------------------------------------------


def draws_around(fits, num_draws, shake, seed=0):
    """An ArviZ object with a chain around each fit: what a sampler gives that never leaves its basin."""
    each = [arviz_io.group(fit.to_arviz(num_draws), "posterior") for fit in fits]
    alpha = np.stack([group["alpha"].values[0] for group in each])
    alpha *= np.exp(shake * np.random.default_rng(seed).standard_normal(alpha.shape))
    noise = np.stack([group["noise_variance"].values[0] for group in each])
    groups = {
        "posterior": {"alpha": (("chain", "draw", "basis"), alpha), "noise_variance": (("chain", "draw"), noise)},
        "observed_data": {"t": (("obs",), fits[0].t)},
    }
    return arviz_io.to_arviz(groups, {}, {})


@pytest.mark.parametrize("method", ["ascend", "nearest"])
def test_mass_of_chains_that_stay(two, method):
    post = draws_around([two[0].fit, two[1].fit, two[1].fit], 12, 0.05)
    mass = two.mass(post, method=method, draws=30, progress=False)
    assert isinstance(mass, BasinMass)
    assert mass.method == method
    np.testing.assert_allclose(mass.per_chain, [[1, 0], [0, 1], [0, 1]])
    np.testing.assert_allclose(mass.mass, [1 / 3, 2 / 3])
    assert mass.elsewhere == 0
    assert mass.basin.shape == (3, 10)
    np.testing.assert_array_equal(mass.visited, 1)
    np.testing.assert_array_equal(mass.switches, 0)
    assert method in repr(mass)


def test_mass_elsewhere(two):
    """An atlas that lacks a maximum says so of its draws."""
    half = dataclasses.replace(two, maxima=two.maxima[:1])
    post = draws_around([two[0].fit, two[1].fit], 6, 0.05)
    mass = half.mass(post, progress=False)
    np.testing.assert_allclose(mass.per_chain, [[1], [0]])
    assert mass.elsewhere == 0.5
    near = half.mass(post, method="nearest", within=0.05, progress=False)
    assert near.elsewhere == 0.5


def test_mass_with_exchange_moves(many):
    """A maximum that an exchange improves keeps its draws only where the ascent makes no such move."""
    stable = explore_maxima(*kernels(), restarts=24, seed=3, exchange=True, progress=False)
    low = many.maxima[-1]
    assert low.objective < stable.maxima[-1].objective
    post = draws_around([low.fit], 5, 0.01)
    np.testing.assert_array_equal(many.mass(post, progress=False).basin, len(many) - 1)
    assert (stable.mass(post, exchange=False, progress=False).basin == -1).all()
    assert (stable.mass(post, progress=False).basin >= 0).all()


def test_mass_on_workers(many):
    post = draws_around([many[0].fit, many[1].fit], 8, 0.3)
    with ThreadPoolExecutor(2) as pool:
        there = many.mass(post, executor=pool, progress=False)
    np.testing.assert_array_equal(there.basin, many.mass(post, progress=False).basin)


def twins():
    """Two columns of correlation 0.97 that explain t about equally well, and one of which is enough."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((20, 2)))[0] * np.sqrt(20)
    half = np.arccos(0.97) / 2
    Phi = np.column_stack([np.cos(half) * q[:, 0] + sign * np.sin(half) * q[:, 1] for sign in (1, -1)])
    return Phi, 2.0 * q[:, 0] + 0.1 * rng.standard_normal(20)


@pytest.mark.slow
def test_mass_of_the_exchange_kernel_is_that_of_quadrature_where_nuts_sticks():
    Phi, t = twins()
    v, c, norm2, high = 0.09, 8.0, 20.0, 1e6
    prior = sbl.Smoothness(c, high=high)
    atlas = explore_maxima(None, t, sbl.Columns(Phi), prior, noise_variance=v, center=False, progress=False)
    assert [maximum.size for maximum in atlas.maxima] == [1, 1]
    logs = np.linspace(np.log(1e-6), np.log(high), 120)
    density = np.empty((120, 120))
    for i, j in np.ndindex(density.shape):
        alpha = np.exp(logs[[i, j]])
        density[i, j] = reference.log_evidence(Phi, t, alpha, v) - np.sum(c / (1 + v * alpha / norm2))
    density = np.exp(density - density.max())
    first = np.tril(density, -1).sum() + 0.5 * np.trace(density)  # alpha of column 1 is the smaller one
    share = first / density.sum()
    expected = share if atlas.best.fit.active[0] == 1 else 1 - share

    masses = {}
    for kernel in ("nuts", "exchange"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sbl.SamplingWarning)
            post = sbl.sample(
                atlas.best.fit, kernel, num_warmup=300, num_samples=500, num_chains=4, seed=0, progress=False
            )
        masses[kernel] = atlas.mass(post, draws=800, progress=False)
    found = masses["exchange"]
    assert (found.visited == 2).all()
    assert masses["nuts"].switches.max() < found.switches.min() / 3
    # A chain between two states that changes at rate r has autocorrelation rho at lag one, and so this error.
    p, rate = expected, found.switches.sum() / (4 * 199)
    rho = max(0.0, 1 - rate / (2 * p * (1 - p)))
    error = np.sqrt(p * (1 - p) / 800 * (1 + rho) / (1 - rho))
    assert abs(found.mass[0] - expected) < 4 * error
    assert found.elsewhere < 0.02


# --- results as tables, files and pictures ---------------------------------------------------------------------------


def test_save_and_load(many, tmp_path):
    path = many.save(tmp_path / "atlas")
    assert path.name == "atlas.npz"
    assert [file.name for file in tmp_path.iterdir()] == ["atlas.npz"]
    again = MaximaAtlas.load(tmp_path / "atlas")
    assert_same_atlas(many, again)
    assert again.settings == many.settings
    assert repr(again) == repr(many)
    np.testing.assert_array_equal(again.distances("support"), many.distances("support"))
    grid = np.linspace(-8, 8, 7)
    np.testing.assert_allclose(again.best.fit.predict(grid), many.best.fit.predict(grid))


def test_save_and_load_an_empty_model_and_a_custom_dictionary(tmp_path):
    rng = np.random.default_rng(2)
    dictionary = sbl.Custom(bumps)
    atlas = explore_maxima(np.arange(12.0), rng.standard_normal(12), dictionary, restarts=4, progress=False)
    atlas.save(tmp_path / "custom.npz")
    assert_same_atlas(atlas, MaximaAtlas.load(tmp_path / "custom.npz", dictionary))
    with pytest.raises(ValueError, match="Custom dictionary"):
        MaximaAtlas.load(tmp_path / "custom.npz")


def test_load_refuses_other_files(many, tmp_path):
    path = many.best.fit.save(tmp_path / "fit")
    with pytest.raises(ValueError, match=r"cannot be read as an atlas .*: it holds a MapFit"):
        MaximaAtlas.load(path)
    with pytest.raises(ValueError, match=r"cannot be read as a fit .*: it holds a MaximaAtlas"):
        sbl.MapFit.load(many.save(tmp_path / "atlas"))


def changed(arrays, **meta):
    return {**arrays, "meta": np.array(json.dumps({**json.loads(str(arrays["meta"])), **meta}))}


DAMAGED = {
    "text": lambda arrays: b"no atlas" * 99,
    "deep json": lambda arrays: {**arrays, "meta": np.array("[" * 100_000)},
    "no maxima": lambda arrays: changed(arrays, maxima=None),
    "strange maxima": lambda arrays: changed(arrays, maxima=[{}]),
    "no settings": lambda arrays: changed(arrays, settings={}),
    "no reference": lambda arrays: {name: value for name, value in arrays.items() if name != "reference"},
    "broken reference": lambda arrays: {**arrays, "reference": arrays["reference"][::2]},
    "no restarts": lambda arrays: {name: value for name, value in arrays.items() if name != "restarts_size"},
    "fewer restarts": lambda arrays: {**arrays, "restarts_size": arrays["restarts_size"][1:]},
    "NaN": lambda arrays: {**arrays, "restarts_objective": arrays["restarts_objective"] * np.nan},
    "strange place": lambda arrays: {**arrays, "restarts_maximum": arrays["restarts_maximum"] + 999},
    "short alpha": lambda arrays: {**arrays, "maximum1_alpha": arrays["maximum1_alpha"][1:]},
    "strange column": lambda arrays: {**arrays, "maximum1_active": arrays["maximum1_active"] + 999},
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_damaged_files_are_one_clear_error(many, change, tmp_path):
    path = many.save(tmp_path / "atlas.npz")
    with np.load(path, allow_pickle=False) as stored:
        content = change(dict(stored))
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez_compressed(path, **content)
    with pytest.raises(ValueError, match=r"atlas\.npz cannot be read as an atlas that MaximaAtlas\.save wrote: ."):
        MaximaAtlas.load(path)


def bumps(x):
    return np.exp(-((np.asarray(x).reshape(-1, 1) - np.arange(12.0)) ** 2))


def test_to_dataframe(many):
    table = many.to_dataframe()
    assert len(table) == len(many)
    np.testing.assert_array_equal(table["found"], many.found)
    np.testing.assert_allclose(table["objective"], many.objective)
    assert table["share"].sum() == pytest.approx(many.found.sum() / 24)


def test_to_arviz(many):
    data = many.to_arviz()
    posterior, stats = arviz_io.group(data, "posterior"), arviz_io.group(data, "sample_stats")
    assert posterior["alpha"].shape == (1, len(many), 50)
    fit = many[1].fit
    np.testing.assert_allclose(posterior["alpha"].values[0, 1, fit.active], fit.alpha)
    np.testing.assert_allclose(posterior["weights"].values[0, 1, fit.active], fit.mean)
    np.testing.assert_allclose(posterior["noise_variance"].values[0, 1], fit.noise_variance)
    np.testing.assert_array_equal(stats["found"].values[0], many.found)
    np.testing.assert_allclose(stats["lp"].values[0], [maximum.log_posterior for maximum in many.maxima])
    mass = many.mass(data, progress=False)  # each maximum is in its own basin
    np.testing.assert_array_equal(mass.basin[0], np.arange(len(many)))


def test_repr_is_a_table(two):
    text = repr(two)
    assert text.startswith("MaximaAtlas: 2 maxima from 60 restarts")
    assert len(text.splitlines()) == 5
    assert all(len(line) < 100 for line in text.splitlines())


def test_pictures(many, two):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    mass = two.mass(draws_around([two[0].fit, two[1].fit], 4, 0.05), progress=False)
    for ax in (
        many.plot_heights(),
        many.plot_supports(),
        many.plot_map(),
        two.plot_map(mass, by="support"),
        many.plot_curves(),
        two.plot_curves(),
    ):
        assert ax.get_title()
        assert any(panel.get_xlabel() for panel in ax.figure.axes)
        ax.figure.canvas.draw()
        plt.close(ax.figure)
    one = dataclasses.replace(two, maxima=two.maxima[:1], restarts=two.restarts | {"maximum": np.zeros(60, int)})
    fig, ax = plt.subplots()
    assert one.plot_map(ax=ax) is ax
    plt.close(fig)
    with pytest.raises(ValueError, match="mass counts 2 maxima and the atlas has"):
        many.plot_map(mass)


@pytest.fixture
def plt():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_picture_of_curves_shows_their_differences(many, plt):
    top = many.plot_curves(3)
    panels = top.figure.axes
    assert len(panels) == 2
    assert panels[0] is top
    x, _, _ = kernels()
    sd = np.sqrt(many.best.noise_variance)
    for k, line in enumerate(panels[1].lines):
        np.testing.assert_array_equal(line.get_xdata(), x)
        np.testing.assert_allclose(line.get_ydata(), (many[k].curve - many[0].curve) / sd, rtol=0, atol=1e-12)
        assert line.get_color() == top.lines[1 + k].get_color()
    assert len(panels[1].lines) == 3
    top.figure.canvas.draw()
    for ax in panels:
        box = ax.get_legend().get_window_extent()
        assert ax.bbox.x1 <= box.x0
        assert box.x1 <= ax.figure.bbox.x1


def test_picture_of_curves_takes_one_or_two_axes(many, two, plt):
    figure, (upper, lower, third) = plt.subplots(3)
    assert many.plot_curves(2, ax=upper) is upper
    assert not lower.lines
    assert two.plot_curves(ax=(lower, third)) is lower
    assert len(third.lines) == 2
    assert plt.get_fignums() == [figure.number]
    with pytest.raises(ValueError, match="ax has 3 axes: give one for the curves, or a second"):
        many.plot_curves(ax=(upper, lower, third))
    assert len(many.plot_curves(1).figure.axes) == 1  # nothing to differ from


def test_picture_of_curves_needs_one_input_and_sorts_it(plt):
    x, t, gaussian = kernels()
    order = np.random.default_rng(0).permutation(len(x))
    atlas = explore_maxima(x[order], t[order], gaussian, restarts=2, progress=False)
    for panel in atlas.plot_curves().figure.axes:
        np.testing.assert_array_equal(panel.lines[-1].get_xdata(), x)
    plt.close("all")
    plane = sbl.datasets.sinc_2d(30)
    atlas = explore_maxima(plane.x, plane.t, sbl.Gaussian(3.0), restarts=2, progress=False)
    with pytest.raises(ValueError, match=r"a curve needs one-dimensional inputs, and x has shape \(30, 2\)"):
        atlas.plot_curves()
    assert not plt.get_fignums()


def test_picture_of_supports_names_the_parts_and_has_a_key(plt):
    x, t, gaussian = kernels()
    atlas = explore_maxima(x, t, gaussian + sbl.Linear() + sbl.Bias(), restarts=2, progress=False)
    ax = atlas.plot_supports()
    (key,) = [other for other in ax.figure.axes if other is not ax]
    assert key.get_ylabel() == "gamma of a kept column"
    (above,) = ax.child_axes
    names = above.get_xticklabels()
    assert [name.get_text().strip() for name in names] == ["Gaussian(2.0)", "Linear", "Bias"]
    raster = ax.images[0].get_array()
    active = atlas.best.fit.active
    np.testing.assert_array_equal(np.flatnonzero(~np.ma.getmaskarray(raster)[0]), active)
    np.testing.assert_allclose(raster[0][active], atlas.best.fit.gamma)
    ax.figure.canvas.draw()
    boxes = [name.get_window_extent() for name in names]
    title = ax.title.get_window_extent()
    for a, b in itertools.combinations([*boxes[:1], title], 2):
        assert not a.overlaps(b)
    assert names[1].get_text().count("\n") != names[2].get_text().count("\n")  # thin parts: one above the other
    assert (np.array(ax.get_yticks()) % 1 == 0).all()


def test_map_numbers_only_maxima_that_have_an_area(many, plt):
    place = len(many) - 1
    mass = BasinMass("nearest", np.array([[0, 0, 0, place]]), np.arange(4), len(many))
    ax = many.plot_map(mass)
    assert sorted(",".join(text.get_text() for text in ax.texts).split(",")) == sorted(["0", str(place)])
    nowhere = BasinMass("ascend", np.full((1, 4), -1), np.arange(4), len(many))
    ax = many.plot_map(nowhere)
    assert not ax.texts
    assert "100% elsewhere" in ax.get_title()


def test_map_writes_numbers_of_neighbours_side_by_side(two, plt):
    """The same maximum twice stands at one place."""
    twice = dataclasses.replace(two, maxima=(two[0], two[0], two[1]))
    assert sorted(text.get_text() for text in twice.plot_map().texts) == ["0, 1", "2"]


def test_picture_of_heights_has_no_legend_over_the_maxima(many, plt):
    ax = many.plot_heights()
    assert ax.get_legend() is None
    assert ax.get_title().endswith("; ring: the greedy search")
    assert (np.array(ax.get_yticks()) % 1 == 0).all()


@pytest.mark.parametrize("name", ["plot_heights", "plot_supports", "plot_map", "plot_curves"])
def test_no_picture_of_an_empty_atlas(two, plt, name):
    empty = dataclasses.replace(two, maxima=(), restarts=two.restarts | {"maximum": np.full(60, -1)})
    with pytest.raises(ValueError, match="the atlas is empty"):
        getattr(empty, name)()
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", ["plot_supports", "plot_curves"])
def test_pictures_need_a_count(two, plt, name):
    with pytest.raises(ValueError, match="count=0 must be a whole number of at least 1"):
        getattr(two, name)(count=0)
    assert not plt.get_fignums()


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"restarts": 0}, "restarts=0 must be a whole number of at least 1"),
        ({"restarts": 2.5}, "restarts=2.5 must be"),
        ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
        ({"executor": 2}, r"executor must be a concurrent.futures.Executor, got int: of a Dask client give"),
        ({"exchange": "yes"}, "exchange='yes' must be True, False, or None"),
        ({"starts": ["middle"]}, r"starts=\['middle'\] must be a sequence of some of"),
        ({"starts": []}, r"starts=\[\] must be"),
        ({"starts": "full"}, "starts='full' must be a sequence"),
        ({"selection": "best"}, "selection='best' is unknown"),
        ({"tolerance": 0.0}, "tolerance=0.0 must be positive"),
        ({"given": [3]}, "given must be a sequence of MapFits, got int"),
        ({"prior": "flat"}, "prior must be a Prior"),
        ({"noise_variance": -1.0}, "noise_variance=-1.0 must be positive"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        explore_maxima(*kernels(), **change)


def test_bad_questions_are_named(two, many):
    post = draws_around([two[0].fit], 4, 0.05)
    for call, message in (
        (lambda: two.distances("colour"), "by='colour' is unknown"),
        (lambda: two.line(0, 1, points=1), "points=1 must be"),
        (lambda: two.line(0, 1, absent=2.0), "absent=2.0 must be between 0 and 1"),
        (lambda: two.mass(post, method="guess"), "method='guess' is unknown"),
        (lambda: two.mass(post, draws=0), "draws=0 must be"),
        (lambda: two.mass(post, executor=4), "executor must be"),
        (lambda: two.mass(3), "no group 'posterior'"),
        (lambda: many.mass(post), "give the draws of this fit"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    other = dataclasses.replace(two[0].fit, t=two[0].fit.t + 1.0)
    with pytest.raises(ValueError, match="other targets"):
        two.mass(draws_around([other], 4, 0.05))


def test_a_function_that_cannot_be_sent_is_named():
    dictionary = sbl.Custom(lambda x: bumps(x))
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(dictionary)
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="give Custom a function from the top level"):
        explore_maxima(np.arange(12.0), np.arange(12.0) % 5, dictionary, restarts=3, executor=pool, progress=False)
