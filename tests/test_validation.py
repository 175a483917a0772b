"""Bad input is refused with the argument, what came and the remedy; odd input that is valid gives a valid fit."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import sbl_ppl as sbl

X = np.linspace(-3.0, 3.0, 16)
T = np.sin(X) + 0.1 * np.random.default_rng(0).standard_normal(16)
KERNEL = sbl.Gaussian(1.0)


def spoiled(values, bad):
    values = values.copy()
    values[3] = bad
    return values


def other_size():
    return sbl.fit_map(X[:8], T[:8], KERNEL)


BAD = {
    "nan in t": (lambda: sbl.fit_map(X, spoiled(T, np.nan), KERNEL), "t holds 1 NaN or infinite.*remove or impute"),
    "inf in t": (lambda: sbl.fit_map(X, spoiled(T, np.inf), KERNEL), "t holds 1 NaN or infinite.*remove or impute"),
    "none in t": (lambda: sbl.fit_map(X, [None, *T[1:]], KERNEL), "t .*"),
    "t of strings": (lambda: sbl.fit_map(X, ["a"] * 16, KERNEL), "t must hold numbers.*convert"),
    "complex t": (lambda: sbl.fit_map(X, T + 1j, KERNEL), "t must hold .*numbers"),
    "ragged t": (lambda: sbl.fit_map(X, [[1.0], [1.0, 2.0]] * 8, KERNEL), "t must hold numbers"),
    "2-D t": (lambda: sbl.fit_map(X, np.stack([T, T], axis=1), KERNEL), r"t must be a vector.*\(16, 2\).*one target"),
    "scalar t": (lambda: sbl.fit_map(X, 1.0, KERNEL), r"t must be a vector.*shape \(\)"),
    "empty t": (lambda: sbl.fit_map([], [], KERNEL), "t must be a vector with at least one value"),
    "huge t": (lambda: sbl.fit_map(X, 1e200 * T, KERNEL), "t .*(scale|rescale|units)"),
    "tiny t": (lambda: sbl.fit_map(X, 1e-200 * T, KERNEL), "t .*(scale|rescale|units)"),
    "nan in x": (lambda: sbl.fit_map(spoiled(X, np.nan), T, KERNEL), "x holds 1 NaN or infinite.*remove or impute"),
    "inf in x": (lambda: sbl.fit_map(spoiled(X, -np.inf), T, KERNEL), "x holds 1 NaN or infinite.*remove or impute"),
    "x of strings": (lambda: sbl.fit_map(["a"] * 16, T, KERNEL), "x must hold numbers.*convert"),
    "complex x": (lambda: sbl.fit_map(X + 1j, T, KERNEL), "x must hold .*numbers"),
    "3-D x": (lambda: sbl.fit_map(np.zeros((16, 1, 1)), T, KERNEL), r"x must have shape.*\(16, 1, 1\).*reshape"),
    "empty x": (lambda: sbl.fit_map([], T, KERNEL), "x is empty.*at least one"),
    "scalar x": (lambda: sbl.fit_map(1.0, T, KERNEL), r"x must have shape"),
    "unequal lengths": (lambda: sbl.fit_map(X[:-1], T, KERNEL), "x has length 15 and t has length 16.*equal"),
    "unequal columns": (
        lambda: sbl.fit_map(None, T, sbl.Columns(np.ones((15, 2)))),
        "t has length 16 .*15 rows.*equal",
    ),
    "matrix as dictionary": (lambda: sbl.fit_map(X, T, np.eye(16)), r"dictionary.*ndarray.*Columns"),
    "class as dictionary": (lambda: sbl.fit_map(X, T, sbl.Gaussian), "dictionary must be a Dictionary"),
    "string as prior": (lambda: sbl.fit_map(X, T, KERNEL, prior="BIC"), "prior must be a Prior.*'BIC'"),
    "class as prior": (lambda: sbl.fit_map(X, T, KERNEL, prior=sbl.Flat), "prior must be a Prior"),
    "unknown method": (lambda: sbl.fit_map(X, T, KERNEL, method="slow"), "method='slow'.*'mackay'"),
    "unknown selection": (lambda: sbl.fit_map(X, T, KERNEL, selection="best"), "selection='best'.*'greedy'"),
    "unknown space": (lambda: sbl.fit_map(X, T, KERNEL, space="sqrt"), "space='sqrt'.*'log'"),
    "unknown severity": (lambda: sbl.Smoothness("DIC"), "c='DIC'.*'BIC'"),
    "unknown measure": (lambda: sbl.Smoothness(measure="dalpha"), "measure='dalpha'.*'log'"),
    "smoothness with mackay": (lambda: sbl.fit_map(X, T, KERNEL, method="mackay"), "method='mackay'.*method='fast'"),
    "falling power with mackay": (
        lambda: sbl.fit_map(X, T, KERNEL, prior=sbl.Power(-0.2), method="mackay"),
        "method='mackay'.*'em'",
    ),
    "power too steep": (lambda: sbl.fit_map(X, T, KERNEL, prior=sbl.Power(-0.7)), "alpha = 0.*space='log'"),
    "jeffreys in alpha": (lambda: sbl.fit_map(X, T, KERNEL, prior=sbl.Jeffreys(), space="alpha"), "space='alpha'"),
    "flat in log": (lambda: sbl.fit_map(X, T, KERNEL, prior=sbl.Flat(), space="log"), "space='log'.*pruned"),
    "zero width": (lambda: sbl.Gaussian(0.0), "width=0.0 must be positive"),
    "negative width": (lambda: sbl.ThinPlateSpline(-1.0), "width=-1.0 must be positive"),
    "nan width": (lambda: sbl.LinearSpline(np.nan), "width=nan must be positive"),
    "too many widths": (lambda: sbl.fit_map(X, T, sbl.Gaussian([1.0, 2.0])), "width=.*one per input dimension"),
    "negative low": (lambda: sbl.Flat(low=-1.0), "low=-1.0 must be positive"),
    "infinite high": (lambda: sbl.Flat(high=np.inf), "high=inf must be positive and finite"),
    "high below the default low": (
        lambda: sbl.fit_map(X, 1e-8 * T, KERNEL, prior=sbl.Flat(high=1.0)),
        "high=1.0 .*low",
    ),
    "low above the default high": (
        lambda: sbl.fit_map(X, 1e8 * T, KERNEL, prior=sbl.Flat(low=1.0)),
        "low=1.0 .*high",
    ),
    "bounds swapped": (lambda: sbl.Flat(low=2.0, high=1.0), "low=2.0 must lie below high=1.0"),
    "odd length": (
        lambda: sbl.fit_map(X[:15], T[:15], sbl.Wavelet("haar")),
        "odd length 15.*drop a point or pad to 16",
    ),
    "deep level": (
        lambda: sbl.fit_map(X, T, sbl.Wavelet("haar", level=9)),
        "level=9 exceeds 4 for length 16.*lower it",
    ),
    "unequal spacing": (lambda: sbl.fit_map(X**3, T, sbl.Wavelet("haar")), "x must be .*equally spaced.*resample"),
    "descending x": (lambda: sbl.fit_map(X[::-1], T, sbl.Wavelet("haar")), "x must be increasing.*sort"),
    "unknown wavelet": (lambda: sbl.Wavelet("haarr"), "'haarr' is unknown"),
    "biorthogonal wavelet": (lambda: sbl.Wavelet("bior2.2"), "not orthogonal.*choose"),
    "start of another size": (lambda: sbl.fit_map(X, T, KERNEL, start=other_size()), "start has 8 columns.*16"),
    "start of another size, em": (
        lambda: sbl.fit_map(X, T, KERNEL, prior=sbl.Flat(), method="em", start=other_size()),
        "start",
    ),
    "start of another size, haar": (lambda: sbl.fit_map(X, T, sbl.Wavelet("haar"), start=other_size()), "start"),
    "start is no fit": (lambda: sbl.fit_map(X, T, KERNEL, start=np.ones(16)), "start"),
    "closed form of a kernel": (lambda: sbl.fit_map(X, T, KERNEL, closed_form=True), "closed_form.*orthonormal"),
    "no steps": (lambda: sbl.fit_map(X, T, KERNEL, max_steps=0), "max_steps=0"),
    "negative steps": (lambda: sbl.fit_map(X, T, KERNEL, max_steps=-1), "max_steps=-1"),
    "x_new of another dimension": (
        lambda: sbl.fit_map(X, T, KERNEL).predict(np.ones((3, 2))),
        "x_new has 2 dimensions",
    ),
    "nan in x_new": (lambda: sbl.fit_map(X, T, KERNEL).predict([np.nan]), "x_new holds 1 NaN"),
    "x_new outside the grid": (lambda: sbl.fit_map(X, T, sbl.Wavelet("haar")).predict([9.0]), "x_new .*outside"),
    "x_new with few columns": (
        lambda: sbl.fit_map(None, T, sbl.Columns(np.eye(16)[:, :8])).predict(np.ones((3, 2))),
        "x_new has 2 columns.*8",
    ),
    "dictionary plus matrix": (lambda: KERNEL + np.eye(3), r"Columns\(...\)"),
}
BAD_NOISE_VARIANCE = ["0.1", [0.1, 0.2], np.array([0.1]), 0.0, -1.0, np.nan, np.inf]
BAD_NOISE_PRIOR = [(-1.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (1.0, np.inf), (1.0,), (1.0, 2.0, 3.0), 1.0, ("a", "b")]


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_its_name(call, message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call()


@pytest.mark.parametrize("value", BAD_NOISE_VARIANCE, ids=repr)
def test_bad_noise_variance_is_refused(value):
    with pytest.raises((ValueError, TypeError), match=r"noise_variance=.*must be"):
        sbl.fit_map(X, T, KERNEL, noise_variance=value)


@pytest.mark.parametrize("value", BAD_NOISE_PRIOR, ids=repr)
def test_bad_noise_prior_is_refused(value):
    with pytest.raises((ValueError, TypeError), match=r"noise_prior=.*\(g, h\)"):
        sbl.fit_map(X, T, KERNEL, noise_prior=value)


def assert_valid(fit, n=16):
    """A plain predict: finite mean, positive sd. That no warning came is pytest's doing."""
    for noise in (True, False):
        mean, sd = fit.predict(noise=noise)
        assert mean.shape == sd.shape == (n,)
        assert np.isfinite(mean).all()
        assert np.isfinite(sd).all()
        assert (sd > 0).all() if noise else (sd >= 0).all()
    assert fit.noise_variance > 0
    assert np.isfinite([fit.log_evidence, fit.log_posterior]).all()
    assert fit.converged
    assert repr(fit)
    return fit


DICTIONARIES = {
    "kernel": KERNEL,
    "spline": sbl.LinearSpline(),
    "haar": sbl.Wavelet("haar"),
    "union": sbl.Wavelet("haar") + sbl.ThinPlateSpline(1.0),
    "columns": sbl.Columns(np.random.default_rng(1).standard_normal((16, 24))),
}
PRIORS = {"bic": None, "flat": sbl.Flat(), "gamma": sbl.Gamma(1e-2, 1e-2), "power": sbl.Power(-0.1)}
each_dictionary = pytest.mark.parametrize("dictionary", DICTIONARIES.values(), ids=DICTIONARIES)
each_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
each_sparse_prior = pytest.mark.parametrize(
    "prior", [None, sbl.Flat(), sbl.Jeffreys()], ids=["bic", "flat", "jeffreys"]
)
each_method = pytest.mark.parametrize("method", ["fast", "mackay", "em"])


@each_dictionary
@each_sparse_prior
@pytest.mark.parametrize("center", [True, False])
def test_zero_targets(dictionary, prior, center):
    fit = assert_valid(sbl.fit_map(X, np.zeros(16), dictionary, prior=prior, center=center))
    assert len(fit.active) == 0
    np.testing.assert_array_equal(fit.predict()[0], 0.0)


@each_dictionary
@each_sparse_prior
@pytest.mark.parametrize("value", [3, 0.1, -1e10, 1e-140])
def test_constant_targets(dictionary, prior, value):
    fit = assert_valid(sbl.fit_map(X, np.full(16, value), dictionary, prior=prior))
    assert len(fit.active) == 0
    np.testing.assert_allclose(fit.predict()[0], value, rtol=1e-14)


@each_prior
def test_constant_targets_in_the_span_of_the_dictionary(prior):
    """Noise-free data: the noise falls to what its prior allows."""
    fit = assert_valid(sbl.fit_map(X, np.full(16, 3.0), sbl.Bias() + sbl.Linear(), prior=prior, center=False))
    np.testing.assert_allclose(fit.predict()[0], 3.0, rtol=1e-3)  # default h is 1e-4 of the spread squared


@each_method
def test_zero_columns_stay_out(method):
    Phi = np.random.default_rng(2).standard_normal((16, 6))
    Phi[:, [0, 3]] = 0.0
    fit = assert_valid(sbl.fit_map(None, T, sbl.Columns(Phi), prior=sbl.Flat(), method=method))
    assert not np.isin([0, 3], fit.active).any()


@each_sparse_prior
@pytest.mark.parametrize("selection", ["greedy", "random", "cyclic"])
def test_centers_out_of_reach_are_zero_columns(prior, selection):
    """exp(-(x - c)²) underflows to zero for far centres."""
    x = np.linspace(-10.0, 10.0, 60)
    t = np.sinc(x / 3) + 0.1 * np.random.default_rng(0).standard_normal(60)
    dictionary = sbl.Gaussian(3.0, centers=np.append(x, [1e3, -1e4]))
    fit = assert_valid(sbl.fit_map(x, t, dictionary, prior=prior, selection=selection), 60)
    assert not np.isin([60, 61], fit.active).any()


def test_only_zero_columns():
    fit = assert_valid(sbl.fit_map(None, T, sbl.Columns(np.zeros((16, 3)))))
    assert len(fit.active) == 0


@each_sparse_prior
@pytest.mark.parametrize("selection", ["greedy", "random", "cyclic"])
@pytest.mark.parametrize("difference", [0.0, 1e-14, 1e-10, 1e-6])
def test_duplicate_columns(prior, selection, difference):
    rng = np.random.default_rng(3)
    Phi = rng.standard_normal((16, 3))
    copies = np.hstack([Phi, Phi + difference * rng.standard_normal((16, 3)), -2.0 * Phi])
    t = Phi @ [1.0, 2.0, 0.0] + 0.1 * rng.standard_normal(16)
    fit = assert_valid(sbl.fit_map(None, t, sbl.Columns(copies), prior=prior, selection=selection))
    single = sbl.fit_map(None, t, sbl.Columns(Phi), prior=prior)
    # Copies share their variance: the evidence is that of one column each, the smoothness price at least as high.
    assert fit.history[-1] == pytest.approx(single.history[-1], abs=1e-3)
    np.testing.assert_allclose(fit.predict()[0], single.predict()[0], atol=1e-2)


@pytest.mark.parametrize(
    ("method", "prior"),
    [("fast", prior) for prior in PRIORS.values()]
    + [("mackay", prior) for prior in (sbl.Flat(), sbl.Gamma(1e-2, 1e-2))]
    + [("em", prior) for prior in (sbl.Flat(), sbl.Gamma(1e-2, 1e-2), sbl.Power(-0.1))],
    ids=str,
)
def test_one_column(method, prior):
    fit = assert_valid(sbl.fit_map(X, T, sbl.Linear(), prior=prior, method=method))
    assert len(fit.active) == 1


@each_prior
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_observations(prior, center, n):
    assert_valid(sbl.fit_map(X[:n], T[:n], KERNEL, prior=prior, center=center), n)


def test_two_observations_in_a_wavelet_basis():
    assert_valid(sbl.fit_map(None, [1.0, 2.0], sbl.Wavelet("haar")), 2)


@each_dictionary
def test_everything_pruned(dictionary):
    fit = assert_valid(sbl.fit_map(X, T, dictionary, prior=sbl.Smoothness(1e3)))
    assert len(fit.active) == 0
    assert fit.covariance.shape == (0, 0)
    assert fit.degrees_of_freedom == 0.0
    assert fit.labels == []
    np.testing.assert_allclose(fit.curve(), T.mean())
    for curve in fit.contributions().values():
        np.testing.assert_array_equal(curve, 0.0)


@each_dictionary
def test_pruned_fit_with_known_noise_has_a_history(dictionary):
    """Nothing to do is a result too: its objective stands in the history."""
    fit = assert_valid(sbl.fit_map(X, T, dictionary, prior=sbl.Smoothness(1e3), noise_variance=1.0))
    assert len(fit.history) >= 1
    assert np.isfinite(fit.history[-1])


@pytest.mark.parametrize(
    ("dictionary", "noise_prior"),
    [
        (KERNEL, (0, 0)),
        (KERNEL, (2.0, 0.0)),
        (KERNEL, (5, 1e3)),
        (sbl.Wavelet("haar"), (0.0, 1e-3)),  # with h = 0 the noise of a square basis has no maximum above zero
        (sbl.Wavelet("haar"), (5, 1e3)),
    ],
    ids=str,
)
def test_improper_and_strong_noise_priors(dictionary, noise_prior):
    assert_valid(sbl.fit_map(X, T, dictionary, noise_prior=noise_prior))


@pytest.mark.parametrize("noise_prior", [(0, 0), (2.0, 0.0)], ids=str)
@pytest.mark.parametrize("t", [np.zeros(16), X], ids=["zero", "line"])
@pytest.mark.parametrize("dictionary", [sbl.Bias() + sbl.Polynomial(2), KERNEL], ids=["polynomial", "kernel"])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.filterwarnings("ignore::sbl_ppl.ConvergenceWarning")
def test_noise_free_data_without_a_floor_from_the_prior(noise_prior, t, dictionary, copies):
    """The best noise variance is zero: the fit stops above it without overflow, and says so if it must."""
    fit = sbl.fit_map(np.tile(X, copies), np.tile(t, copies), dictionary, noise_prior=noise_prior)
    mean, sd = fit.predict()
    assert np.isfinite(mean).all()
    assert (sd > 0).all()


SAME = {
    "list": (X.tolist(), T.tolist()),
    "tuple": (tuple(X), tuple(T)),
    "series": (pd.Series(X), pd.Series(T, index=range(100, 116))),
    "frame": (pd.DataFrame({"a": X}), pd.DataFrame({"t": T})),
    "column": (X[:, None], T[:, None]),
    "non-contiguous": (np.repeat(X, 2)[::2], np.repeat(T, 3)[::3]),
    "reversed view": (X[::-1].copy()[::-1], T[::-1].copy()[::-1]),
    "object": (X.astype(object), T.astype(object)),
}


@pytest.mark.parametrize(("x", "t"), SAME.values(), ids=SAME)
def test_containers_do_not_matter(x, t):
    expected, fit = sbl.fit_map(X, T, KERNEL), assert_valid(sbl.fit_map(x, t, KERNEL))
    np.testing.assert_array_equal(fit.alpha, expected.alpha)
    np.testing.assert_array_equal(fit.predict(x)[0], expected.predict(X)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int8, bool, np.uint8])
def test_other_dtypes_count_as_their_values(dtype):
    x, t = np.arange(16).astype(np.uint8).astype(dtype), (10 * np.abs(T)).astype(dtype)
    expected = sbl.fit_map(x.astype(float), t.astype(float), sbl.Wavelet("haar") if dtype is not bool else KERNEL)
    fit = sbl.fit_map(x, t, expected.dictionary)
    np.testing.assert_array_equal(fit.mean, expected.mean)
    assert fit.t.dtype == fit.mean.dtype == np.float64


@pytest.mark.parametrize("layout", ["fortran", "read-only", "non-contiguous", "frame", "list", "float32"])
def test_layout_of_a_matrix_does_not_matter(layout):
    Phi = np.random.default_rng(4).integers(-9, 10, (16, 24)).astype(float)  # exact in float32
    given = {
        "fortran": np.asfortranarray(Phi),
        "read-only": Phi.copy(),
        "non-contiguous": np.repeat(Phi, 2, axis=1)[:, ::2],
        "frame": pd.DataFrame(Phi, columns=[f"gene {k}" for k in range(24)]),
        "list": Phi.tolist(),
        "float32": Phi.astype(np.float32),
    }[layout]
    if layout == "read-only":
        given.flags.writeable = False
    expected, fit = sbl.fit_map(None, T, sbl.Columns(Phi)), assert_valid(sbl.fit_map(None, T, sbl.Columns(given)))
    np.testing.assert_array_equal(fit.active, expected.active)
    np.testing.assert_allclose(fit.mean, expected.mean, rtol=1e-9)
    if layout == "frame":
        assert fit.labels == [f"gene {k}" for k in fit.active]


def test_missing_inputs_count_from_zero():
    for dictionary in (KERNEL, sbl.Wavelet("haar")):
        fit, expected = sbl.fit_map(None, T, dictionary), sbl.fit_map(np.arange(16), T, dictionary)
        np.testing.assert_array_equal(fit.alpha, expected.alpha)


@each_dictionary
def test_inputs_are_not_modified(dictionary):
    x, t = X.copy(), T.copy()
    x.flags.writeable = t.flags.writeable = False
    fit = sbl.fit_map(x, t, dictionary)
    if dictionary is not DICTIONARIES["columns"]:
        fit.predict(x)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(t, T)


@pytest.mark.parametrize(
    "make", [lambda x: sbl.Linear(), lambda x: KERNEL, sbl.Columns], ids=["linear", "kernel", "columns"]
)
def test_later_changes_of_the_inputs_do_not_reach_the_fit(make):
    x, t = X[:, None].copy(), T.copy()
    fit = sbl.fit_map(x, t, make(x))
    before = fit.predict()[0].copy()
    x[:], t[:] = 0.0, 0.0
    np.testing.assert_array_equal(fit.predict()[0], before)
    np.testing.assert_array_equal(fit.t, T)


def test_a_fit_cannot_be_reassigned():
    fit = sbl.fit_map(X, T, KERNEL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        fit.alpha = np.ones(3)


FRAME = pd.DataFrame(np.random.default_rng(5).standard_normal((16, 3)), columns=["a", "b", "c"])
FRAME -= FRAME.mean()
OUTCOME = FRAME.to_numpy() @ [2.0, -1.0, 1.0] + 0.1 * T  # every column counts
SHUFFLED = FRAME[["c", "a", "b"]].assign(day=pd.Timestamp("2020-01-01"), name="text")
OF_FRAMES = {
    "inputs": lambda: sbl.fit_map(FRAME, OUTCOME, sbl.Linear() + sbl.Gaussian(2.0)),
    "columns": lambda: sbl.fit_map(None, OUTCOME, sbl.Columns(FRAME)),
    "columns, labels": lambda: sbl.fit_map(None, OUTCOME, sbl.Columns(FRAME, labels=["one", "two", "three"])),
    "columns and bias": lambda: sbl.fit_map(None, OUTCOME, sbl.Columns(FRAME) + sbl.Bias(), center=False),
    "two matrices": lambda: sbl.fit_map(None, OUTCOME, sbl.Columns(FRAME[["a"]]) + sbl.Columns(FRAME[["b", "c"]])),
    "inputs beside columns": lambda: sbl.fit_map(
        FRAME["b"], OUTCOME, sbl.Columns(FRAME[["c", "a"]]) + sbl.Gaussian(2.0)
    ),
}
each_frame_fit = pytest.mark.parametrize("make", OF_FRAMES.values(), ids=OF_FRAMES)


@each_frame_fit
@pytest.mark.parametrize("stored", [False, True], ids=["fitted", "loaded"])
def test_columns_of_a_frame_are_found_by_name(make, stored, tmp_path):
    """Whatever their order and whatever stands between them, they give what the training inputs give."""
    fit = make()
    assert len(fit.active) >= 3
    expected, curve, parts = fit.predict(), fit.curve(), fit.contributions()
    if stored:
        fit = sbl.MapFit.load(fit.save(tmp_path / "fit"))
    for frame in (FRAME, SHUFFLED):
        # another route through the same sums: a few roundings of values of order ten
        np.testing.assert_allclose(fit.predict(frame), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(fit.curve(frame), curve, rtol=0, atol=1e-12)
        for name, part in fit.contributions(frame).items():
            np.testing.assert_allclose(part, parts[name], rtol=0, atol=1e-12)


@each_frame_fit
def test_a_frame_without_a_column_is_refused(make):
    for name in FRAME:
        with pytest.raises(ValueError, match=rf"x_new has the columns .*'d'.* and lacks \['{name}'\]: rename"):
            make().predict(FRAME.rename(columns={name: "d"}))


def test_two_columns_of_one_name_are_refused():
    fit = OF_FRAMES["inputs"]()
    with pytest.raises(ValueError, match="x_new has several columns of one name"):
        fit.predict(pd.concat([FRAME, FRAME[["a"]]], axis=1))


def test_arrays_are_taken_as_they_come():
    fit, plain = OF_FRAMES["inputs"](), sbl.fit_map(FRAME.to_numpy(), OUTCOME, sbl.Linear() + sbl.Gaussian(2.0))
    np.testing.assert_array_equal(fit.predict(FRAME.to_numpy()), plain.predict(FRAME.to_numpy()))
    np.testing.assert_array_equal(plain.predict(FRAME[["c", "a", "b"]]), plain.predict(FRAME.to_numpy()[:, [2, 0, 1]]))


@pytest.mark.parametrize("x", [FRAME["a"], FRAME[["a"]]], ids=["series", "frame"])
def test_one_named_column_is_found_in_a_frame(x):
    fit = sbl.fit_map(x, T, KERNEL)
    np.testing.assert_array_equal(fit.predict(SHUFFLED), fit.predict(FRAME["a"].to_numpy()))
    np.testing.assert_array_equal(fit.predict(FRAME["a"]), fit.predict(FRAME["a"].to_numpy()))
    with pytest.raises(ValueError, match=r"lacks \['a'\]"):
        fit.predict(FRAME[["b"]])


def test_centers_in_another_order_than_the_inputs_are_refused():
    with pytest.raises(ValueError, match=r"centers have the columns \['c', 'a', 'b'\] and x has \['a', 'b', 'c'\]"):
        sbl.fit_map(FRAME, T, sbl.Gaussian(2.0, centers=FRAME[["c", "a", "b"]]))


def test_columns_beside_a_kernel_predict_from_a_pair():
    matrix = FRAME[["a", "b"]].to_numpy()
    fit = sbl.fit_map(X, T + matrix @ [1.0, -1.0], sbl.Columns(matrix) + sbl.Gaussian(1.0))
    np.testing.assert_allclose(fit.predict((X, matrix)), fit.predict(), rtol=0, atol=1e-12)
    one_by_one = [fit.predict((X[[n]], matrix[[n]]))[0][0] for n in range(16)]
    np.testing.assert_allclose(one_by_one, fit.predict()[0], rtol=0, atol=1e-12)
    for wrong in (X, matrix):
        with pytest.raises(ValueError, match=r"x_new must be a pair \(points, matrix\).*Gaussian.*Columns"):
            fit.predict(wrong)
    with pytest.raises(ValueError, match=r"x_new has \[3, 16\] rows"):
        fit.predict((X[:3], matrix))


def test_several_matrices_predict_from_one_that_has_all_columns():
    matrices = [FRAME[names].to_numpy() for names in (["a"], ["b", "c"])]
    fit = sbl.fit_map(None, OUTCOME, sbl.Columns(matrices[0]) + sbl.Columns(matrices[1]))
    assert len(fit.active) == 3
    np.testing.assert_allclose(fit.predict(FRAME.to_numpy()), fit.predict(), rtol=0, atol=1e-12)


def test_posterior_predictions_know_the_names_too():
    fit = OF_FRAMES["inputs beside columns"]()
    post, plain = fit.to_arviz(8), (FRAME["b"].to_numpy(), FRAME[["c", "a"]].to_numpy())
    np.testing.assert_array_equal(sbl.predict_posterior(fit, post, SHUFFLED), sbl.predict_posterior(fit, post, plain))
    report = sbl.compare(fit, post, SHUFFLED)
    np.testing.assert_array_equal(report.delta.mean, fit.predict(plain, augment=False)[0])
    mean = sbl.predict_posterior(fit, post, augment=False)[0]
    np.testing.assert_allclose(report.posterior.mean, mean, rtol=1e-13)  # another compiled program


MASKED = np.ma.masked_greater(X, 2.0)
NAT = np.array(["2020-01-01", "NaT"] * 8, "M8[D]")
DAYS = pd.date_range("2020-01-01", periods=16)
NO_NUMBERS = {
    "masked": (MASKED, "holds 3 masked values: remove them, or impute"),
    "NaT": (NAT, "holds dates or times"),
    "dates": (DAYS.to_numpy(), "holds dates or times.*timedelta64"),
    "index of dates": (DAYS, "holds dates or times"),
    "series of dates": (pd.Series(DAYS), "holds dates or times"),
    "dates of a zone": (pd.Series(DAYS.tz_localize("UTC")), "holds dates or times"),
    "durations": (DAYS - DAYS[0], "holds dates or times"),
    "objects": (np.array([np.datetime64("2020-01-01")] * 16, dtype=object), "holds dates or times"),
    "digits": ([str(value) for value in X], "must hold numbers.*convert"),
}


@pytest.mark.parametrize(("values", "message"), NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_is_no_number_is_refused(values, message):
    fit, table = sbl.fit_map(X, T, KERNEL), sbl.fit_map(None, T, sbl.Columns(X))
    for name, call in (
        ("x", lambda: sbl.fit_map(values, T, KERNEL)),
        ("t", lambda: sbl.fit_map(X, values, KERNEL)),
        ("x_new", lambda: fit.predict(values)),
        ("x_new", lambda: table.predict(values)),
        ("matrix", lambda: sbl.Columns(values)),
        ("centers", lambda: sbl.Gaussian(1.0, centers=values)),
    ):
        with pytest.raises(ValueError, match=f"^{name} {message}"):
            call()


def test_dates_beside_numbers_are_refused():
    with pytest.raises(ValueError, match=r"^x holds dates or times"):
        sbl.fit_map(pd.DataFrame({"day": DAYS, "place": X}), T, KERNEL)


def test_a_mask_that_hides_nothing_is_no_matter():
    fit = sbl.fit_map(np.ma.array(X), np.ma.array(T), KERNEL)
    np.testing.assert_array_equal(fit.mean, sbl.fit_map(X, T, KERNEL).mean)


def test_days_since_the_first_input_are_numbers():
    """The remedy that the refusal of dates names."""
    days = (DAYS - DAYS[0]) / np.timedelta64(1, "D")
    np.testing.assert_array_equal(sbl.fit_map(days, T, KERNEL).mean, sbl.fit_map(np.arange(16.0), T, KERNEL).mean)


TABLE = np.random.default_rng(6).standard_normal((16, 3))
TOO_LARGE = {
    "polynomial": (lambda: sbl.fit_map(1e110 * X, T, sbl.Polynomial(3)), "x is too large for Polynomial.*units"),
    "thin plate": (lambda: sbl.fit_map(1e160 * X, T, sbl.ThinPlateSpline()), "x is too large for ThinPlate.*units"),
    "linear spline": (lambda: sbl.fit_map(1e110 * X, T, sbl.LinearSpline()), "x is too large for LinearSpline.*units"),
    "narrow": (lambda: sbl.fit_map(1e300 * X, T, sbl.Gaussian(1e-20)), "x is too large for Gaussian.*units"),
    "new inputs": (
        lambda: sbl.fit_map(X, T, sbl.Polynomial(3)).predict(1e110 * X),
        "x_new is too large for Polynomial.*units",
    ),
    "product": (
        lambda: sbl.fit_map(None, 1e-150 * T, sbl.Columns(1e150 * TABLE)),
        "dictionary .* t .*change the units",
    ),
    "quotient": (lambda: sbl.fit_map(None, 1e150 * T, sbl.Columns(1e-150 * TABLE)), "dictionary .*change the units"),
    "one column": (lambda: sbl.fit_map(None, T, sbl.Columns(TABLE * [1, 1, 1e160])), "dictionary .* 5e\\+160"),
    "at the end of floats": (lambda: sbl.fit_map(None, T, sbl.Columns(1e307 * TABLE)), "dictionary .*units"),
    "linear": (lambda: sbl.fit_map(1e-170 * X, T, sbl.Linear()), "dictionary .*change the units"),
}


@pytest.mark.parametrize(("call", "message"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_columns_beyond_the_range_of_floats_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("factor", [1e-60, 1e60])
def test_columns_within_the_range_of_floats_are_fitted(factor):
    fit = assert_valid(sbl.fit_map(None, T / factor, sbl.Columns(factor * TABLE)))
    plain = sbl.fit_map(None, T, sbl.Columns(TABLE))
    np.testing.assert_allclose(fit.predict()[0] * factor, plain.predict()[0], rtol=1e-9)


def test_a_gaussian_far_away_is_zero_without_a_warning():
    assert_valid(sbl.fit_map(X, T, sbl.Gaussian(1.0, centers=np.append(X, [1e200, -1e200]))))


def test_draws_of_something_else_are_refused():
    fit = sbl.fit_map(X, T, KERNEL)
    others = {
        "other targets": sbl.fit_map(X, T + 1e-9, KERNEL),
        "another dictionary of the same size": sbl.fit_map(X, T, sbl.Gaussian(2.0)),
        "post has 8 columns, fit 16": sbl.fit_map(X, T, sbl.Gaussian(1.0, centers=X[:8])),
    }
    atlas = sbl.explore_maxima(X, T, KERNEL, restarts=1, progress=False)
    for message, other in others.items():
        post = other.to_arviz(8)
        for call in (sbl.compare, sbl.predict_posterior, lambda _, post: atlas.mass(post, progress=False)):
            with pytest.raises(ValueError, match=message):
                call(fit, post)
