"""Problems that nobody would choose by hand, as recipes of a few plain values that print as they are written."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import sbl_ppl as sbl


@dataclass(frozen=True)
class Recipe:
    """Arguments of `fit_map`: `data()` and `options()` always give the same ones for the same recipe.

    `parts` of the dictionary are tuples (kind, parameters...), widths in units of the span of x. `unit_t` and `unit_x`
    are powers of ten, `offset` and `noise` (sd) are in units of the spread of t, `bounds` (powers of ten) in those of
    |column|^2 / spread(t)^2 of the median column; `noise_prior` is (g, h in units of spread(t)^2).
    """

    n: int = 8
    seed: int = 0
    inputs: str = "regular"
    unit_x: int = 0
    targets: str = "smooth"
    unit_t: int = 0
    offset: float = 0.0
    parts: tuple = (("bias",),)
    prior: tuple = ("smoothness", "BIC", "log", True)
    bounds: tuple | None = None
    noise: float | None = None
    noise_prior: tuple | None = None
    center: bool = False
    selection: str = "greedy"
    exchange: bool | None = None
    method: str = "fast"

    def inputs_of(self, rng):
        n, unit = self.n, 10.0**self.unit_x
        if self.inputs == "years":
            return np.sort(1960.0 + rng.choice(61, n, replace=n > 61))
        if self.inputs == "regular":
            return unit * np.arange(n)
        if self.inputs == "random":
            return unit * rng.standard_normal(n)
        if self.inputs == "duplicates":
            return unit * rng.integers(0, max(2, n // 3), n)
        if self.inputs == "gaps":
            return unit * np.sort(rng.uniform(0, 1, n) + 50.0 * rng.integers(0, 2, n))
        assert self.inputs == "plane", self.inputs
        return unit * rng.uniform(-1, 1, (n, 2))

    def targets_of(self, x, rng):
        """Of spread one, but for the constant; the offset and the unit come on top."""
        line = (x if x.ndim == 1 else x.sum(axis=1)) - np.mean(x)
        line = 2.0 * line / max(np.abs(line).max(), 1e-300)
        noise = rng.standard_normal(self.n)
        t = {
            "smooth": np.sin(4.0 * line) + 0.3 * noise,
            "jumps": np.sign(np.sin(5.0 * line)) + 0.1 * noise,
            "noise": noise,
            "linear": line,
            "exact": np.sin(2.0 * line),
            "tiny": np.cos(3.0 * line) + 1e-6 * noise,
            "heavy": line + rng.standard_cauchy(self.n),
            "spike": np.eye(self.n)[self.n // 2],
            "constant": np.ones(self.n),
            "zero": np.zeros(self.n),
        }[self.targets]
        spread = np.std(t)
        t = t / spread if spread > 1e-9 else t
        return 10.0**self.unit_t * (t + self.offset)

    def part(self, kind, parameters, x, rng):
        span = float(np.ptp(x, axis=0).max()) or 1.0
        if kind in ("gaussian", "thin plate", "linear spline"):
            width, centers = parameters
            kernel = {"gaussian": sbl.Gaussian, "thin plate": sbl.ThinPlateSpline, "linear spline": sbl.LinearSpline}
            if centers is not None:
                first, last, count = centers
                centers = x.min(axis=0) + span * rng.uniform(first, last, (count, *x.shape[1:]))
            return kernel[kind](width * span, centers=centers)
        if kind == "columns":
            return sbl.Columns(matrix_of(*parameters, self.n, rng))
        if kind == "wavelet":
            return sbl.Wavelet(*parameters)
        return {"bias": sbl.Bias, "linear": sbl.Linear, "polynomial": sbl.Polynomial}[kind](*parameters)

    def data(self):
        """x (None for columns alone), t and the dictionary."""
        rng = np.random.default_rng(self.seed)
        x = self.inputs_of(rng)
        t = self.targets_of(x, rng)
        parts = [self.part(kind, parameters, x, rng) for kind, *parameters in self.parts]
        dictionary = parts[0] if len(parts) == 1 else sbl.dictionary.Union(parts)
        return (None if all(kind == "columns" for kind, *_ in self.parts) else x), t, dictionary

    def new_inputs(self, x, dictionary):
        """Two training inputs and three between or near them; a matrix for columns, or both as a pair."""
        rng = np.random.default_rng(self.seed + 1)
        width = sum(part.matrix.shape[1] for part in dictionary.parts if isinstance(part, sbl.Columns))
        matrix = rng.standard_normal((5, width))
        if all(kind in ("columns", "bias") for kind, *_ in self.parts) and width:
            return matrix
        margin = 0.0 if any(kind == "wavelet" for kind, *_ in self.parts) else 0.3
        places = rng.uniform(-margin, 1 + margin, (3, *x.shape[1:]))
        points = np.concatenate([x[:2], x.min(axis=0) + np.ptp(x, axis=0) * places])
        return (points, matrix) if width else points

    def options(self, t, Phi):
        """Keyword arguments; `Phi` is the matrix of the dictionary, whose units the bounds take."""
        spread = self.spread(t)
        kind, *parameters = self.prior
        norm2 = np.median(np.sum(Phi**2, axis=0)) or 1.0
        low, high = (None, None) if self.bounds is None else (10.0**k * norm2 / spread**2 for k in self.bounds)
        if kind == "gamma":
            a, b = parameters
            parameters = a, b * spread**2 / norm2
        prior = {
            "flat": lambda measure: sbl.Flat(low, high, measure),
            "smoothness": lambda c, measure, normalize: sbl.Smoothness(c, measure, normalize, low, high),
            "gamma": lambda a, b: sbl.Gamma(a, b, low, high),
            "power": lambda zeta: sbl.Power(zeta, low, high),
            "jeffreys": lambda: sbl.Jeffreys(low, high),
        }[kind](*parameters)
        return {
            "prior": prior,
            "noise_variance": None if self.noise is None else (self.noise * spread) ** 2,
            "noise_prior": None if self.noise_prior is None else (self.noise_prior[0], self.noise_prior[1] * spread**2),
            "center": self.center,
            "selection": self.selection,
            "exchange": self.exchange,
            "method": self.method,
            "seed": self.seed,
            "progress": False,
        }

    def spread(self, t):
        """The unit of what is given: the root mean square of t, or of t without its mean."""
        rms = np.sqrt(np.mean((t - self.center * np.mean(t)) ** 2))
        return rms if rms > 1e-13 * np.abs(t).max() else np.abs(t).max() or 1.0


def matrix_of(kind, m, n, rng):
    """N x M columns of a kind that regressions meet."""
    Phi = rng.standard_normal((n, m))
    if kind == "duplicated":
        Phi[:, m // 2 :] = Phi[:, : m - m // 2]
    elif kind == "dependent":
        Phi[:, 1:] = Phi[:, :1] + 1e-6 * Phi[:, 1:]
    elif kind == "zero":
        Phi[:, rng.integers(m)] = 0.0
    elif kind == "norms":
        Phi *= 10.0 ** rng.uniform(-8, 8, m)
    elif kind == "indicators":
        Phi = (Phi > 0.5).astype(float)
    elif kind == "offset":
        Phi += 1e3
    elif kind == "orthogonal":
        Phi = np.linalg.qr(Phi)[0]
    else:
        assert kind == "random", kind
    return Phi


def parts(draw, n, inputs):
    """One to three parts; a wavelet basis where x is a grid of even length."""
    width = st.sampled_from([1e-3, 0.03, 0.1, 0.3, 1.0, 10.0, 1e3])
    centers = st.one_of(
        st.none(),
        st.tuples(st.sampled_from([-3.0, 0.0, 0.5]), st.sampled_from([1.0, 1.2, 4.0]), st.integers(1, 30)),
    )
    kinds = [
        st.tuples(st.just("gaussian"), width, centers),
        st.tuples(st.just("thin plate"), width, centers),
        st.tuples(st.just("linear spline"), width, centers),
        st.tuples(st.just("bias")),
        st.tuples(st.just("linear")),
        st.tuples(st.just("polynomial"), st.integers(2, 3)),
        columns(n),
    ]
    if inputs == "regular" and n % 2 == 0:
        kinds += 2 * [st.tuples(st.just("wavelet"), st.sampled_from(["haar", "db2", "sym4"]))]
    return tuple(draw(st.lists(st.one_of(kinds), min_size=1, max_size=3)))


def columns(n):
    return st.tuples(
        st.just("columns"),
        st.sampled_from(["random", "duplicated", "dependent", "zero", "norms", "indicators", "offset", "orthogonal"]),
        st.one_of(st.integers(1, n), st.integers(1, 2 * n)),
    )


def fixed_point_priors():
    """What MacKay's updates and EM know: no smoothness term, and (MacKay) no falling density."""
    return st.one_of(
        st.tuples(st.just("flat"), st.sampled_from(["log", "alpha"])),
        st.tuples(st.just("gamma"), st.sampled_from([1e-4, 0.1, 0.5]), st.sampled_from([1e-4, 1e-2, 1.0])),
        st.tuples(st.just("jeffreys")),
    )


def unitless_priors():
    """Those that do not change with the units of a column."""
    return st.one_of(
        st.tuples(
            st.just("smoothness"),
            st.sampled_from(["AIC", "BIC", "RIC", 0.0, 0.3, 2.5]),
            st.sampled_from(["log", "alpha"]),
            st.just(True),
        ),
        st.tuples(st.just("flat"), st.sampled_from(["log", "alpha"])),
        st.tuples(st.just("power"), st.just(-0.2)),
        st.tuples(st.just("jeffreys")),
    )


def all_priors():
    measure = st.sampled_from(["log", "alpha"])
    c = st.sampled_from(["AIC", "BIC", "RIC", 0.0, 0.3, 2.5, 20.0])
    return st.one_of(
        st.tuples(st.just("smoothness"), c, measure, st.booleans()),
        st.tuples(st.just("flat"), measure),
        st.tuples(st.just("gamma"), st.sampled_from([1e-4, 0.1, 0.5]), st.sampled_from([1e-4, 1e-2, 1.0])),
        st.tuples(st.just("power"), st.just(-0.2)),
        st.tuples(st.just("jeffreys")),
    )


@st.composite
def recipes(draw, center=None, methods=("fast",), priors=None, only_columns=False, **fixed):
    """Any recipe; the simplest ones, which failures shrink to, come first everywhere."""
    n = draw(st.integers(2, 60))
    inputs = draw(st.sampled_from(["regular", "random", "duplicates", "gaps", "years", "plane"]))
    bounds = st.one_of(
        st.none(),
        st.sampled_from([(-3, 4), (-1, 1), (-12, 12), (0, 2), (-8, -4)]),
    )
    values = {
        "n": n,
        "seed": draw(st.integers(0, 10_000)),
        "inputs": inputs,
        "unit_x": draw(st.sampled_from([0, 0, -6, 6])),
        "targets": draw(
            st.sampled_from(
                ["smooth", "jumps", "noise", "linear", "exact", "tiny", "heavy", "spike", "constant", "zero"]
            )
        ),
        "unit_t": draw(st.sampled_from([0, 0, -8, 8])),
        "offset": draw(st.sampled_from([0.0, 0.0, 1.0, -100.0, 1e6])),
        "parts": (draw(columns(n)),) if only_columns else parts(draw, n, inputs),
        "prior": draw(all_priors() if priors is None else priors),
        "bounds": draw(bounds),
        "noise": draw(st.sampled_from([None, None, None, 0.3, 1.0, 1e-2, 1e-4, 1e-7])),
        "noise_prior": draw(st.sampled_from([None, None, (2.0, 0.3), (0.0, 0.0), (1.0, 1e-6)])),
        "center": draw(st.booleans()) if center is None else center,
        "selection": draw(st.sampled_from(["greedy", "greedy", "random", "cyclic"])),
        "exchange": draw(st.sampled_from([None, None, True, False])),
        "method": draw(st.sampled_from(methods)),
    }
    return Recipe(**{**values, **fixed})
