"""Every argument of every public name refuses what it cannot be, by its name, before any work."""

import inspect
from types import ModuleType

import matplotlib as mpl
import numpy as np
import pytest

import sbl_ppl as sbl

mpl.use("Agg")

X = np.linspace(-3.0, 3.0, 16)
T = np.sin(X) + 0.1 * np.random.default_rng(0).standard_normal(16)
KERNEL = sbl.Gaussian(1.0, centers=[-2.0, 0.0, 2.0])
FIT = sbl.fit_map(X, T, KERNEL)
POST = FIT.to_arviz(8)
ATLAS = sbl.explore_maxima(X, T, KERNEL, restarts=2, progress=False)

NO_FLAGS = ["no", 1, None, np.ones(2)]
NO_COUNTS = [-1, 2.5, 3.0, True, "3", None]
NO_SEEDS = [-1, 1.5, 2.0, True, "0", None, 2**63]
NO_NUMBERS = ["1", True, None, [1.0], np.nan, 1j]
NO_PRIORS = ["BIC", sbl.Flat, 1.0]
NO_FITS = [None, "fit", np.ones(3)]
NO_WORDS = ["other", 3, np.ones(2), ["log"]]
NO_PATHS = [3, b"a".hex]
NO_DATA = ["abc", [None, None], np.array(["2020-01-01"], "M8[D]"), np.array([1], "m8[s]"), 1j * np.ones(16)]


def some(values, *others):
    """The values but for those that are meant otherwise here, such as None for a default."""
    return [value for value in values if not any(value is other for other in others)]


def count(name, least, *others):
    return name, f"{name}=.* must be a whole number of at least {least}", [*some(NO_COUNTS, *others), least - 1]


def flag(name, *others):
    return name, f"{name}=.* must be True", some(NO_FLAGS, *others)


def positive(name, *others):
    return name, f"{name}=.* must be positive", [*some(NO_NUMBERS, *others), 0.0, -1.0, np.inf]


BOUNDS = [positive("low", None), positive("high", None)]
SEED = ("seed", "seed=.* must be a whole number", NO_SEEDS)
PRIOR = ("prior", "prior.* must be a Prior", NO_PRIORS)
NOISE = ("noise_prior", r"noise_prior=.*\(g, h\)", [1.0, "ab", (1.0,), (-1.0, 1.0), (1.0, np.nan), ("1", 1.0)])
FITTED = ("fit", "fit must be a MapFit", NO_FITS)
DRAWS = ("post", "post, a .*, has no group 'posterior': give what sample returned", [None, 3, {}])
INPUTS = ("x_new", "x_new (must hold numbers|holds)", NO_DATA)
PREDICTION = [
    flag("augment", None),
    ("quantiles", "quantiles", [0.0, 1.5, "half", np.ones((2, 2)), np.nan]),
    count("draws", 1, None),
    SEED,
]
AXES = "must be Matplotlib axes"
KERNEL_OF_MCMC = [
    PRIOR,
    positive("noise_variance", None),
    NOISE,
    ("fixed_alpha", "fixed_alpha must hold", ["a", [-1.0], [[1.0]], 1.0]),
    count("num_exchanges", 0, None),
    count("num_noise_steps", 1),
    ("grid_size", "grid_size=.* must be", [*NO_COUNTS, 3, 0]),
]
KERNEL_OF_X = [
    ("width", "width", [0.0, -1.0, np.nan, np.inf, "1", None, True, [[1.0]], 1j]),
    ("centers", "centers (must|holds|is)", [*NO_DATA, [np.nan], []]),
]
PROBLEM = [
    ("x", "x (must|holds|is)", [*NO_DATA, 3.0]),
    ("t", "t (must|holds|is)", [*NO_DATA, None, 3.0]),
    ("dictionary", "dictionary must be a Dictionary", [None, "haar", np.eye(16), sbl.Gaussian]),
    PRIOR,
    positive("noise_variance", None),
    NOISE,
    flag("center"),
    ("space", "space=.* is unknown", NO_WORDS),
    count("max_steps", 1, None),
    flag("progress"),
]

# What is called, with arguments that are right; and for each of its arguments the words with which it refuses values.
CALLS = {
    "Flat": (sbl.Flat, {}, [*BOUNDS, ("measure", "measure=.* is unknown", [*NO_WORDS, None])]),
    "Jeffreys": (sbl.Jeffreys, {}, [*BOUNDS, ("measure", "measure=.* contradicts Jeffreys", ["alpha", None])]),
    "Prior": (sbl.Prior, {}, BOUNDS),
    "Smoothness": (
        sbl.Smoothness,
        {},
        [
            *BOUNDS,
            ("c", "c=.* must be a finite number >= 0, or 'None'", [*NO_NUMBERS, -1.0, np.inf, np.ones(2)]),
            ("measure", "measure=.* is unknown", [*NO_WORDS, None]),
            flag("normalize"),
        ],
    ),
    "Gamma": (
        sbl.Gamma,
        {},
        [*BOUNDS, *((name, f"^{name}=.* must be a finite number >= 0", [*NO_NUMBERS, -1.0, np.inf]) for name in "ab")],
    ),
    "Power": (sbl.Power, {}, [*BOUNDS, ("zeta", "zeta=.* must be finite and <= 0", [*NO_NUMBERS, 0.1, -np.inf])]),
    "Gaussian": (sbl.Gaussian, {}, KERNEL_OF_X),
    "LinearSpline": (sbl.LinearSpline, {}, KERNEL_OF_X),
    "ThinPlateSpline": (sbl.ThinPlateSpline, {}, KERNEL_OF_X),
    "Bias": (sbl.Bias, {}, []),
    "Linear": (sbl.Linear, {}, []),
    "Dictionary": (sbl.Dictionary, {}, []),
    "Polynomial": (sbl.Polynomial, {"degree": 2}, [count("degree", 1)]),
    "Custom": (
        sbl.Custom,
        {"function": np.sin},
        [
            ("function", "function must be callable", [None, "sin", np.eye(2)]),
            ("name", "name must be a string", [3, None]),
        ],
    ),
    "Columns": (
        sbl.Columns,
        {"matrix": np.eye(3)},
        [
            ("matrix", "matrix (must|holds)", [*NO_DATA, None, [[np.nan]], np.empty((0, 2))]),
            ("labels", "labels", ["abc", 3, ["a"]]),
            ("names", "names", ["abc", 3, ["a"]]),
        ],
    ),
    "Wavelet": (
        sbl.Wavelet,
        {},
        [("name", "name=.* is (unknown|not orthogonal)", [None, 3, "haarr", "bior2.2"]), count("level", 1, None)],
    ),
    "fit_map": (
        sbl.fit_map,
        {"x": X, "t": T, "dictionary": KERNEL},
        [
            *PROBLEM,
            ("method", "method=.* is unknown", [*NO_WORDS, None]),
            ("selection", "selection=.* is unknown", [*NO_WORDS, None]),
            flag("exchange", None),
            SEED,
            ("start", "start must be a MapFit", ["fit", 3, np.ones(3)]),
            flag("closed_form", None),
        ],
    ),
    "MapFit.predict": (FIT.predict, {}, [INPUTS, flag("noise"), *PREDICTION]),
    "MapFit.curve": (FIT.curve, {}, [INPUTS]),
    "MapFit.inputs": (FIT.inputs, {}, [("x_new", None, [])]),
    "MapFit.contributions": (FIT.contributions, {}, [INPUTS, flag("with_sd")]),
    "MapFit.without": (FIT.without, {}, [("rows", None, [])]),
    "MapFit.problem": (FIT.problem, {}, [("prior", None, [])]),
    "MapFit.leave_one_out": (FIT.leave_one_out, {}, []),
    "MapFit.to_arviz": (FIT.to_arviz, {}, [count("num_draws", 4), SEED]),
    "MapFit.save": (FIT.save, {}, [("path", "path must be a path", [*NO_PATHS, None])]),
    "MapFit.load": (
        sbl.MapFit.load,
        {"path": "nowhere"},
        [
            ("path", "path must be a path", [*NO_PATHS, None]),
            ("dictionary", "dictionary must be a Dictionary", ["haar", 3]),
        ],
    ),
    "denoise": (
        sbl.denoise,
        {"t": T},
        [
            ("t", "t (must|holds|is)", [*NO_DATA, None, 3.0]),
            ("wavelet", "wavelet", [None, 3, sbl.Gaussian(), "haarr"]),
            PRIOR,
            positive("noise_variance", None),
            count("shifts", 1),
        ],
    ),
    "explore_maxima": (
        sbl.explore_maxima,
        {"x": X, "t": T, "dictionary": KERNEL, "restarts": 2, "progress": False},
        [
            *PROBLEM,
            count("restarts", 1),
            SEED,
            ("executor", "executor must be a concurrent.futures.Executor", [2, "threads"]),
            flag("exchange", None),
            ("starts", "starts=.* must be a sequence", ["full", [], None, 3, ["middle"], [["full"]]]),
            ("selection", "selection=.* is unknown", [*NO_WORDS, None]),
            positive("tolerance"),
            ("given", "given must be", [3, None, [3], "fit"]),
        ],
    ),
    "MaximaAtlas.distances": (ATLAS.distances, {}, [("by", "by=.* is unknown", [*NO_WORDS, None])]),
    "MaximaAtlas.clusters": (
        ATLAS.clusters,
        {},
        [positive("threshold"), ("by", "by=.* is unknown", [*NO_WORDS, None])],
    ),
    "MaximaAtlas.line": (
        ATLAS.line,
        {"first": 0, "second": 0},
        [
            ("first", "first=.* must be a whole number", [*NO_COUNTS, 99]),
            ("second", "second=.* must be a whole number", [*NO_COUNTS, 99]),
            count("points", 2),
            ("absent", "absent=.* must be between 0 and 1", [*some(NO_NUMBERS, None), 0.0, 1.0]),
        ],
    ),
    "MaximaAtlas.barriers": (ATLAS.barriers, {}, [count("count", 1), ("absent", None, [])]),
    "MaximaAtlas.mass": (
        ATLAS.mass,
        {"post": POST, "progress": False},
        [
            DRAWS,
            ("method", "method=.* is unknown", [*NO_WORDS, None]),
            count("draws", 1),
            ("within", "within=.* must be a positive number", [*NO_NUMBERS, 0.0]),
            ("absent", "absent=.* must be between 0 and 1", [*NO_NUMBERS, 0.0, 1.0]),
            flag("exchange", None),
            ("executor", "executor must be", [2, "threads"]),
            flag("progress"),
        ],
    ),
    "plot_fit": (
        sbl.plot_fit,
        {"fit": FIT},
        [FITTED, INPUTS, ("truth", "truth", ["abc", 3.0, [1.0]]), ("ax", f"ax {AXES}", [3, "ax"]), flag("noise")],
    ),
    "plot_contributions": (
        sbl.plot_contributions,
        {"fit": FIT},
        [FITTED, INPUTS, ("truth", "truth", ["abc", 3.0, []]), ("axes", f"axes {AXES}", [3, "ax"])],
    ),
    "plot_shrinkage": (
        sbl.plot_shrinkage,
        {"fit": FIT},
        [FITTED, ("ax", f"ax {AXES}", [3, "ax"]), positive("limit", None)],
    ),
    "plot_comparison": (
        sbl.plot_comparison,
        {"report": sbl.compare(FIT, POST)},
        [
            ("report", "report must be a Comparison", [None, FIT, 3]),
            count("columns", 1),
            ("axes", f"axes (has|{AXES})", [3, "ax", [None]]),
        ],
    ),
    "sample": (
        sbl.sample,
        {"fit": FIT, "progress": False},
        [
            FITTED,
            ("kernel", "kernel=.* is unknown", NO_WORDS),
            count("num_warmup", 0, None),
            count("num_samples", 1),
            count("num_chains", 1, None),
            PRIOR,
            ("start", "start=.* is unknown", NO_WORDS),
            ("seed", "seed=.* must be a whole number", some(NO_SEEDS, None)),
            count("thin", 1, None),
            ("fixed_alpha", "fixed_alpha", ["a", 1.0, [1.0], [-1.0, np.nan, np.nan], [1.0, 1.0, 1.0]]),
            ("tempering", "tempering=.* must be a number of rungs, or powers", [1, True, "8", [1.0], ["a", "b"], 2.5]),
            ("kernel_options", "kernel_options=", [3, "abc", {1: 2}, {"depth": 3}, {"num_exchanges": 2.5, "a": 1}]),
            ("path", "path must be a path", NO_PATHS),
            ("resume", "resume must be a path", NO_PATHS),
            flag("progress"),
        ],
    ),
    "predict_posterior": (
        sbl.predict_posterior,
        {"fit": FIT, "post": POST},
        [FITTED, DRAWS, INPUTS, flag("noise"), count("max_draws", 1, None), *PREDICTION],
    ),
    "compare": (
        sbl.compare,
        {"fit": FIT, "post": POST},
        [FITTED, DRAWS, INPUTS, ("truth", "truth", ["abc", 3.0, [1.0]]), count("max_draws", 1, None)],
    ),
    "log_evidence": (
        sbl.log_evidence,
        {"fit": sbl.fit_map(X, T, KERNEL, noise_prior=(2.0, 0.1)), "progress": False},
        [
            FITTED,
            PRIOR,
            NOISE,
            count("num_rungs", 2),
            count("num_warmup", 0),
            count("num_samples", 20),
            count("num_chains", 1),
            SEED,
            ("powers", "powers", ["a", [0.5, 0.0], ["a", "b"], [1.0, 0.5]]),
            flag("progress"),
        ],
    ),
    "ExchangeGibbs": (sbl.ExchangeGibbs, {}, KERNEL_OF_MCMC),
    "TemperedExchange": (
        sbl.TemperedExchange,
        {"noise_variance": 1.0},
        [
            *KERNEL_OF_MCMC,
            ("powers", "powers", [1, True, 2.5, None, "a", ["a", "b"], [1.0], [0.5, 0.0], [1.0, np.nan]]),
        ],
    ),
    "model": (
        sbl.model,
        {"design": np.eye(3), "t": np.ones(3)},
        [
            ("design", "design", ["abc", None, np.ones(3), [["a"]]]),
            ("t", "^t (has|must|is)", ["abc", ["a"] * 3, np.ones(2), np.zeros(3)]),
            PRIOR,
            positive("noise_variance", None),
            ("noise_prior", "noise_prior=", [1.0, "ab", (1.0,), (-1.0, 1.0)]),
            ("fixed_alpha", "fixed_alpha must hold", ["a", [-1.0] * 3, [1.0]]),
            ("weights", "weights=.* is unknown", NO_WORDS),
            ("prefix", "prefix must be a string", [None, 3]),
        ],
    ),
    "precision": (
        sbl.precision,
        {"prior": sbl.Flat()},
        [
            ("prior", "prior must be a Prior", [*NO_PRIORS, None]),
            count("num_obs", 1, None),
            *((name, f"{name}=.* must be", ["1", None, True]) for name in ("noise_variance", "norm2", "scale2")),
        ],
    ),
    "write_netcdf": (
        sbl.write_netcdf,
        {"data": POST, "path": "nowhere"},
        [("data", "data must be an ArviZ object", [None, 3]), ("path", "path must be a path", [*NO_PATHS, None])],
    ),
    "read_netcdf": (sbl.read_netcdf, {}, [("path", "path must be a path", [*NO_PATHS, None])]),
    "datasets.sinc": (
        sbl.datasets.sinc,
        {},
        [
            count("n", 2),
            ("snr", "snr=.* must be positive", ["7", True, -1.0, np.nan]),
            ("noise_sd", "noise_sd=.* must be finite", ["1", True, -1.0, np.nan]),
            ("noise", "noise=.* is unknown", [*NO_WORDS, None]),
            SEED,
        ],
    ),
}
# Made by the package and not by its users, or without arguments of their own.
RESULTS = {"BasinMass", "Comparison", "Denoised", "Evidence", "MapFit", "MaximaAtlas"}
ROWS = [
    pytest.param(function, {**good, argument: value}, words, id=f"{name}-{argument}-{k}")
    for name, (function, good, refusals) in CALLS.items()
    for argument, words, values in refusals
    for k, value in enumerate(values)
]


@pytest.mark.parametrize(("function", "arguments", "words"), ROWS)
def test_bad_arguments_are_refused_by_name(function, arguments, words):
    with pytest.raises((ValueError, TypeError), match=f"(?s){words}"):
        function(**arguments)


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_is_in_the_table(name):
    function, good, refusals = CALLS[name]
    asked = inspect.signature(function).parameters if function is not sbl.Dictionary else {}
    assert {argument for argument, _, _ in refusals} == set(asked)
    assert set(good) <= set(asked)


@pytest.mark.parametrize("name", sbl.__all__)
def test_every_public_name_is_in_the_table(name):
    value = getattr(sbl, name)
    known = name in CALLS or name in RESULTS or isinstance(value, ModuleType)
    assert known or (isinstance(value, type) and issubclass(value, Warning))


@pytest.mark.parametrize("name", ["MapFit", "MaximaAtlas"])
def test_every_method_of_a_result_is_in_the_table(name):
    """But for those that store and draw what the table has already."""
    found = {
        f"{name}.{method}"
        for method, value in inspect.getmembers(getattr(sbl, name), inspect.isfunction)
        if not method.startswith(("_", "plot_")) and len(inspect.signature(value).parameters) > 1
    }
    assert found - {"MaximaAtlas.save", "MaximaAtlas.load"} <= set(CALLS)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32])
def test_integers_of_numpy_are_whole_numbers(kind):
    fit = sbl.fit_map(X, T, KERNEL, seed=kind(3), max_steps=kind(100), selection="random")
    assert fit.settings["seed"] == 3
    np.testing.assert_array_equal(
        FIT.to_arviz(kind(5), seed=kind(3)).posterior["weights"], FIT.to_arviz(5, 3).posterior["weights"]
    )
    assert sbl.denoise(T, shifts=kind(2)).n_kept >= 0


@pytest.mark.parametrize("value", [np.True_, np.False_])
def test_truth_values_of_numpy_are_flags(value):
    fit = sbl.fit_map(X, T, KERNEL, center=value, exchange=value, prior=sbl.Smoothness(normalize=value))
    same = sbl.fit_map(
        X, T, KERNEL, center=bool(value), exchange=bool(value), prior=sbl.Smoothness(normalize=bool(value))
    )
    np.testing.assert_array_equal(fit.mean, same.mean)
    assert fit.prior == same.prior
