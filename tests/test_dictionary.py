"""Dictionaries: every fast path against the dense matrix, kernels and wavelets against their formulas, refusals."""

import math

import numpy as np
import pandas as pd
import pytest
import pywt
import reference as ref

import sbl_ppl as sbl
from sbl_ppl.dictionary import parts_of

GRID = np.linspace(-3.0, 5.0, 48)
PLANE = np.random.default_rng(0).uniform(-2.0, 2.0, (30, 2))
TABLE = np.random.default_rng(1).standard_normal((48, 7))
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}  # sums of about a hundred terms of order one
# PyWavelets tabulates its filters to about 1e-11, so no basis is orthonormal to better than that.
FILTER = {"rtol": 0.0, "atol": 1e-9}


def waves(x):
    return np.stack([np.sin(x), np.cos(2 * x)], axis=1)


def product(x):
    return x[:, 0] * x[:, 1]


CASES = {
    "gaussian": (sbl.Gaussian(1.5), GRID),
    "gaussian 2-D": (sbl.Gaussian((0.5, 2.0)), PLANE),
    "gaussian, centers": (sbl.Gaussian(0.7, centers=[-1.0, 0.25, 3.0]), GRID),
    "thin plate": (sbl.ThinPlateSpline(3.0), GRID),
    "thin plate 2-D": (sbl.ThinPlateSpline(0.8), PLANE),
    "linear spline": (sbl.LinearSpline(2.0), GRID),
    "linear spline 2-D": (sbl.LinearSpline((1.0, 3.0)), PLANE),
    "bias": (sbl.Bias(), GRID),
    "linear": (sbl.Linear(), GRID),
    "linear 2-D": (sbl.Linear(), PLANE),
    "polynomial": (sbl.Polynomial(3), GRID),
    "polynomial 2-D": (sbl.Polynomial(3), PLANE),
    "custom": (sbl.Custom(waves), GRID),
    "custom 2-D, one column": (sbl.Custom(product, name="product"), PLANE),
    "haar": (sbl.Wavelet("haar"), GRID),
    "sym8": (sbl.Wavelet("sym8"), GRID),
    "db4, level 2": (sbl.Wavelet("db4", level=2), GRID),
    "coif3, level 4": (sbl.Wavelet("coif3", level=4), GRID),
    "union": (sbl.Wavelet("haar") + sbl.ThinPlateSpline(3.0) + sbl.Bias(), GRID),
    "union 2-D": (sbl.Gaussian(1.0) + sbl.Linear() + sbl.Custom(product), PLANE),
    "union of equals": (sbl.Gaussian(1.0) + sbl.Gaussian(1.0), GRID),
}
WITH_MATRIX = {
    **CASES,
    "columns": (sbl.Columns(TABLE), None),
    "columns + bias": (sbl.Columns(TABLE) + sbl.Bias(), GRID),
}


def bound(cases):
    """Parametrise a test over designs bound to their inputs."""
    values = [pytest.param(dictionary.bind(x), x, id=name) for name, (dictionary, x) in cases.items()]
    return pytest.mark.parametrize(("design", "x"), values)


@bound(WITH_MATRIX)
def test_columns_are_those_of_the_matrix(design, x):
    Phi = design.matrix()
    assert Phi.shape == (design.n_rows, design.n_columns)
    some = np.array([design.n_columns - 1, 0, design.n_columns // 2])
    np.testing.assert_array_equal(design.columns(some), Phi[:, some])
    np.testing.assert_array_equal(design.columns(0), Phi[:, 0])


@bound(WITH_MATRIX)
def test_products_are_dense_products(design, x):
    Phi, rng = design.matrix(), np.random.default_rng(2)
    rows, weights = rng.standard_normal((3, design.n_rows)), rng.standard_normal(design.n_columns)
    scale = np.abs(Phi).max()  # polynomials reach 125
    np.testing.assert_allclose(design.project(rows[0]), rows[0] @ Phi, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(design.gram_rows(rows), rows @ Phi, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(design.combine(weights), Phi @ weights, rtol=0, atol=1e-12 * scale)
    assert design.gram_rows(np.empty((0, design.n_rows))).shape == (0, design.n_columns)


@bound(WITH_MATRIX)
def test_norms(design, x):
    # Wavelets say 1 exactly, so their columns agree to the digits of the filters.
    np.testing.assert_allclose(design.norms(), np.sqrt((design.matrix() ** 2).sum(axis=0)), rtol=1e-9)


@bound(CASES)
def test_values_at_the_training_inputs_are_the_columns(design, x):
    some = np.arange(design.n_columns)[::-2]
    np.testing.assert_allclose(design.evaluate(x, some), design.columns(some), **ROUNDING)


def check_curve_and_spread(design, x_new):
    rng = np.random.default_rng(3)
    some = rng.permutation(design.n_columns)[: max(1, design.n_columns // 2)]
    weights, variances = rng.standard_normal(len(some)), rng.exponential(size=len(some))
    values = design.columns(some) if x_new is None else design.evaluate(x_new, some)
    close = {"rtol": 0.0, "atol": 1e-12 * np.abs(values).max() ** 2}  # an FFT's error is relative to the largest value
    np.testing.assert_allclose(design.curve(x_new, some, weights), values @ weights, **close)
    np.testing.assert_allclose(design.spread(x_new, some, variances), values**2 @ variances, **close)


@bound(WITH_MATRIX)
def test_curve_and_spread_are_dense(design, x):
    check_curve_and_spread(design, None)


@bound(CASES)
@pytest.mark.parametrize("between", [False, True], ids=["some of the inputs", "between them"])
def test_curve_and_spread_at_new_inputs_are_dense(design, x, between):
    check_curve_and_spread(design, np.concatenate([x[20:4:-3], 0.9 * x + 0.07]) if between else x[20:4:-3])


@pytest.mark.parametrize("factor", [1e-170, 1e170], ids=["tiny", "huge"])
def test_norms_beyond_the_range_of_squares(factor):
    matrix = np.column_stack([TABLE[:, 0] * factor, TABLE[:, 1], np.zeros(len(TABLE))])
    expected = [factor * np.linalg.norm(TABLE[:, 0]), np.linalg.norm(TABLE[:, 1]), 0.0]
    np.testing.assert_allclose(sbl.Columns(matrix).bind(None).norms(), expected, rtol=1e-14)


@bound(WITH_MATRIX)
def test_labels_are_unique_and_readable(design, x):
    labels = design.labels
    assert len(labels) == len(set(labels)) == design.n_columns
    assert all(label.isprintable() and label == label.strip() != "" for label in labels)


@pytest.mark.parametrize(
    ("dictionary", "x", "labels"),
    [
        (sbl.Gaussian(2.0), [0.5, 1.0], ["Gaussian(2.0)@0.5", "Gaussian(2.0)@1"]),
        (sbl.ThinPlateSpline(1.0), [[0.5, 1.0]], ["ThinPlateSpline(1.0)@0.5, 1"]),
        (sbl.Wavelet("haar"), [0, 1, 2, 3], ["scaling 2[0]", "detail 2[0]", "detail 1[0]", "detail 1[1]"]),
        (sbl.Bias() + sbl.Linear(), [[0, 1]], ["Bias", "Linear(x0)", "Linear(x1)"]),
        (sbl.Polynomial(2), [[0, 1]], ["x0", "x1", "x0*x0", "x0*x1", "x1*x1"]),
        (sbl.Custom(waves, name="wave"), [0, 1], ["wave[0]", "wave[1]"]),
        (sbl.Columns(np.eye(2)), None, ["column 0", "column 1"]),
        (sbl.Columns(np.eye(2), labels=["a", "b"]), None, ["a", "b"]),
        (sbl.Columns(pd.DataFrame({"mass": [1.0], "age": [2.0]})), None, ["mass", "age"]),
        (sbl.Columns(np.eye(3), labels=["a", "a", "a #2"]), None, ["a", "a #3", "a #2"]),
    ],
    ids=lambda value: None if isinstance(value, list) else repr(value)[:40],
)
def test_labels(dictionary, x, labels):
    prefix = "haar " if isinstance(dictionary, sbl.Wavelet) else ""
    assert dictionary.bind(x).labels == [prefix + label for label in labels]


def test_labels_of_equal_columns_differ():
    labels = (sbl.Gaussian(1.0) + sbl.Gaussian(1.0)).bind([0.0, 0.0, 1.0]).labels
    assert len(set(labels)) == 6


def test_union_concatenates_in_order():
    parts = sbl.Wavelet("haar"), sbl.Gaussian(2.0), sbl.Polynomial(2)
    designs = [part.bind(GRID) for part in parts]
    for union in ((parts[0] + parts[1]) + parts[2], parts[0] + (parts[1] + parts[2])):
        assert union.parts == parts
        design = union.bind(GRID)
        assert not design.orthonormal
        np.testing.assert_array_equal(design.matrix(), np.hstack([d.matrix() for d in designs]))
        np.testing.assert_array_equal(design.norms(), np.concatenate([d.norms() for d in designs]))
        assert design.labels == [label for d in designs for label in d.labels]


def test_parts_of_names_ranges():
    dictionary = sbl.Gaussian(2.0) + sbl.Bias() + sbl.Gaussian(2.0)
    parts = parts_of(dictionary, dictionary.bind(GRID))
    assert [(part.name, part.start, part.stop) for part in parts] == [
        ("Gaussian(2.0)", 0, 48),
        ("Bias", 48, 49),
        ("Gaussian(2.0) #2", 49, 97),
    ]
    [only] = parts_of(sbl.Bias(), sbl.Bias().bind(GRID))
    assert (only.name, only.start, only.stop) == ("Bias", 0, 1)


@pytest.mark.parametrize(
    "dictionary",
    [
        sbl.Gaussian(2.0),
        sbl.ThinPlateSpline((1.0, 2.0)),
        sbl.LinearSpline(1.0, centers=PLANE),
        sbl.Bias(),
        sbl.Linear(),
        sbl.Polynomial(3),
        sbl.Wavelet("db4", level=2),
        sbl.Columns(TABLE, labels=list("abcdefg")),
    ],
    ids=repr,
)
def test_config_rebuilds_the_dictionary(dictionary):
    x = {"Wavelet": GRID, "Columns": None}.get(type(dictionary).__name__, PLANE)
    again, design = type(dictionary)(**dictionary.config()).bind(x), dictionary.bind(x)
    np.testing.assert_array_equal(again.matrix(), design.matrix())
    assert again.labels == design.labels


def gaussian(x, c, r):
    return math.exp(-sum(((a - b) / w) ** 2 for a, b, w in zip(x, c, r, strict=True)))


def thin_plate(x, c, r):
    rho = math.sqrt(sum(((a - b) / w) ** 2 for a, b, w in zip(x, c, r, strict=True)))
    return rho**2 * math.log(rho) if rho > 0 else 0.0


def linear_spline(x, c, r):
    value = 1.0
    for a, b, w in zip(x, c, r, strict=True):
        m = min(a, b)
        value *= 1 + a * b / w**2 + a * b * m / w**3 - (a + b) / 2 * m**2 / w**3 + m**3 / (3 * w**3)
    return value


@pytest.mark.parametrize("centers", [None, "other"], ids=["at the inputs", "centers="])
@pytest.mark.parametrize(
    ("x", "width"), [(GRID, (0.7,)), (PLANE, (0.5, 2.0)), (PLANE, 1.5)], ids=["1-D", "2-D", "2-D, one width"]
)
@pytest.mark.parametrize(
    ("kernel", "formula"),
    [(sbl.Gaussian, gaussian), (sbl.ThinPlateSpline, thin_plate), (sbl.LinearSpline, linear_spline)],
    ids=["SE07 (39)", "SE07 (40)", "SE07 (38)"],
)
def test_kernels_are_the_papers(kernel, formula, x, width, centers):
    points = x.reshape(len(x), -1)
    r = np.broadcast_to(width, points.shape[1])
    middle = points if centers is None else points[::4] + 0.3
    expected = np.array([[formula(p, c, r) for c in middle] for p in points])
    design = kernel(width, centers=None if centers is None else middle).bind(x)
    # The linear spline adds terms as large as x³/r³, about 400, and they cancel.
    np.testing.assert_allclose(design.matrix(), expected, rtol=1e-13, atol=1e-12)


def test_kernel_is_the_same_in_chunks():
    """A table of 300 x 300 is computed in two blocks, one of 20 x 20 in one."""
    x = np.linspace(0, 1, 300)
    design = sbl.ThinPlateSpline(0.1).bind(x)
    np.testing.assert_array_equal(design.matrix()[::15, ::15], sbl.ThinPlateSpline(0.1).bind(x[::15]).matrix())


def test_thin_plate_is_zero_at_coincident_points():
    x = np.array([0.1, 0.1, 7.3, 0.1])
    Phi = sbl.ThinPlateSpline(0.3).bind(x).matrix()
    np.testing.assert_array_equal(Phi[np.ix_([0, 1, 3], [0, 1, 3])], 0.0)
    assert Phi[2, 2] == 0.0
    assert (Phi[2, [0, 1, 3]] != 0).all()


def test_polynomial_is_all_monomials():
    a, b = PLANE.T
    np.testing.assert_allclose(
        sbl.Polynomial(3).bind(PLANE).matrix(),
        np.column_stack([a, b, a * a, a * b, b * b, a**3, a * a * b, a * b * b, b**3]),
        rtol=1e-14,
    )


def test_formulas_keep_no_hold_on_the_callers_arrays():
    x, matrix = GRID.copy(), np.asfortranarray(TABLE)
    designs = [sbl.Linear().bind(x), sbl.Wavelet("haar").bind(x), sbl.Columns(matrix).bind(None)]
    before = [design.matrix().copy() for design in designs]
    x_new = x.copy()
    x[:], matrix[:] = -1.0, -1.0
    for design, expected in zip(designs, before, strict=True):
        np.testing.assert_array_equal(design.matrix(), expected)
    np.testing.assert_array_equal(designs[1].evaluate(x_new, np.arange(48)), before[1])


BASES = [
    (name, n, level)
    for name in ("haar", "db2", "db4", "sym8", "coif3", "db20")
    for n, level in ((16, 4), (48, 1), (48, 4), (64, 3), (128, 7))
]


@pytest.mark.parametrize(("name", "n", "level"), BASES, ids=[f"{name}-{n}-{level}" for name, n, level in BASES])
def test_wavelets_are_pywavelets_inverse_transform(name, n, level):
    design = sbl.Wavelet(name, level=level).bind(np.arange(n))
    W = ref.wavelet_matrix(name, n, level)
    np.testing.assert_allclose(design.matrix(), W, **ROUNDING)
    v = np.random.default_rng(4).standard_normal(n)
    np.testing.assert_allclose(design.project(v), W.T @ v, **ROUNDING)
    np.testing.assert_allclose(design.combine(v), W @ v, **ROUNDING)
    np.testing.assert_allclose(design.combine(design.project(v)), v, **FILTER)
    np.testing.assert_allclose(design.project(design.combine(v)), v, **FILTER)


ORTHOGONAL = [name for name in pywt.wavelist(kind="discrete") if pywt.Wavelet(name).orthogonal and name != "dmey"]


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_every_orthogonal_family_is_orthonormal(name):
    design = sbl.Wavelet(name, level=5).bind(np.arange(32))
    assert design.orthonormal
    np.testing.assert_allclose(design.matrix().T @ design.matrix(), np.eye(32), **FILTER)


@pytest.mark.parametrize(
    ("name", "n", "level"),
    [("haar", 64, 6), ("haar", 48, 4), ("sym8", 128, 3), ("sym8", 16, 1), ("db20", 16, 1)],
    ids=str,
)
def test_default_level_is_as_deep_as_the_filter_fits(name, n, level):
    np.testing.assert_array_equal(
        sbl.Wavelet(name).bind(np.arange(n)).matrix(), sbl.Wavelet(name, level=level).bind(np.arange(n)).matrix()
    )


def test_haar_is_piecewise_constant_between_grid_points():
    x = np.linspace(0.0, 3.0, 16)
    step, indices = x[1], np.arange(16)
    design = sbl.Wavelet("haar").bind(x)
    for offset in (-0.49, -0.2, 0.2, 0.49):
        np.testing.assert_array_equal(design.evaluate(x + offset * step, indices), design.matrix())


@pytest.mark.parametrize("name", ["db2", "sym8"])
def test_other_wavelets_are_linear_between_grid_points(name):
    x = np.linspace(-1.0, 3.0, 32)
    design = sbl.Wavelet(name).bind(x)
    x_new = np.random.default_rng(5).uniform(-1.0, 3.0, 50)
    expected = np.column_stack([np.interp(x_new, x, column) for column in design.matrix().T])
    np.testing.assert_allclose(design.evaluate(x_new, np.arange(32)), expected, **ROUNDING)
    # Half a step beyond an end the value is that of the end.
    ends = design.evaluate([x[0] - 0.5 * (x[1] - x[0]), x[-1] + 0.5 * (x[1] - x[0])], np.arange(32))
    np.testing.assert_array_equal(ends, design.matrix()[[0, -1]])


@pytest.mark.parametrize(
    "x", [np.linspace(-10, 10, 128, dtype=np.float32), 1.6e9 + 0.1 * np.arange(64)], ids=["float32", "time stamps"]
)
def test_a_grid_may_be_rounded(x):
    """Rounding moves these points by 1e-5 steps: still equally spaced, and still on the grid at prediction."""
    design = sbl.Wavelet("sym8").bind(x)
    indices = np.arange(len(x))
    np.testing.assert_array_equal(design.matrix(), sbl.Wavelet("sym8").bind(indices).matrix())
    np.testing.assert_array_equal(design.evaluate(x, indices), design.matrix())


KINDS = {
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(x.tolist()),
    "int": lambda x: x.astype(int),
    "float32": lambda x: x.astype(np.float32),
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "read-only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
    "pandas": lambda x: (pd.Series if x.ndim == 1 else pd.DataFrame)(x),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (sbl.Gaussian(3.0).bind, (16,)),
        (sbl.Gaussian(3.0).bind, (8, 2)),
        (sbl.Polynomial(2).bind, (16, 1)),
        (sbl.Polynomial(2).bind, (8, 2)),
        (sbl.Wavelet("db4").bind, (16,)),
        (sbl.Wavelet("db4").bind, (16, 1)),
        (lambda matrix: sbl.Columns(matrix).bind(), (16,)),
        (lambda matrix: sbl.Columns(matrix).bind(), (8, 2)),
    ],
    ids=["kernel", "kernel 2-D", "polynomial", "polynomial 2-D", "wavelet", "wavelet (N, 1)", "vector", "matrix"],
)
def test_any_kind_of_array_means_the_same(kind, make, shape):
    x = np.arange(16.0).reshape(shape)
    expected, design = make(x), make(KINDS[kind](x))
    assert design.matrix().dtype == np.float64
    np.testing.assert_array_equal(design.matrix(), expected.matrix())
    indices = np.arange(design.n_columns)
    np.testing.assert_array_equal(design.evaluate(KINDS[kind](x), indices), expected.matrix())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sbl.Gaussian(0.0), r"width=0.0 must be positive and finite"),
        (lambda: sbl.Gaussian(-1), r"width=-1 must be positive"),
        (lambda: sbl.ThinPlateSpline(np.nan), r"width=nan must be positive and finite"),
        (lambda: sbl.LinearSpline((1.0, np.inf)), r"width=\(1.0, inf\) must be positive and finite"),
        (lambda: sbl.Gaussian((1.0, 2.0, 3.0)).bind(PLANE), r"one per input dimension \(2\): got 3"),
        (lambda: sbl.Gaussian(()).bind(PLANE), r"one per input dimension \(2\): got 0"),
        (lambda: sbl.Gaussian(1.0, centers=[0.0, 1.0]).bind(PLANE), r"centers have 1 dimensions and x has 2"),
        (lambda: sbl.Gaussian(1.0, centers=[0.0, np.nan]), r"centers holds 1 NaN"),
        (lambda: sbl.Polynomial(0), r"degree=0 must be a whole number of at least 1: use Bias"),
        (lambda: sbl.Polynomial(2.5), r"degree=2.5 must be a whole number"),
        (lambda: sbl.Columns(np.array([[1.0, np.nan]])), r"matrix holds 1 NaN or infinite values"),
        (lambda: sbl.Columns(np.empty((3, 0))), r"matrix must be an N x M matrix .* got shape \(3, 0\)"),
        (lambda: sbl.Columns(np.zeros((2, 2, 2))), r"matrix must be an N x M matrix .* got shape \(2, 2, 2\)"),
        (lambda: sbl.Columns([["a"]]), r"matrix must hold numbers"),
        (lambda: sbl.Columns(TABLE, labels=["a"]), r"labels has 1 names for 7 columns"),
        (lambda: sbl.Columns(TABLE).bind().evaluate(TABLE[:, :3], [0]), r"x_new has 3 columns, the dictionary has 7"),
        (lambda: sbl.Custom(lambda x: x[:3]).bind(GRID), r"must return finite values of shape \(48, M\), got \(3, 1\)"),
        (lambda: sbl.Custom(lambda x: x[:, None, None]).bind(GRID), r"got \(48, 1, 1\)"),
        (lambda: sbl.Custom(lambda x: np.empty((len(x), 0))).bind(GRID), r"shape \(48, M\), got \(48, 0\)"),
        (lambda: sbl.Custom(lambda x: 1.0).bind(GRID), r"shape \(48, M\), got \(\)"),
        (lambda: sbl.Custom(lambda x: x * np.nan).bind(GRID), r"got \(48, 1\) with NaN or infinite values"),
        (lambda: sbl.Custom(waves).config(), r"is not saved: pass dictionary="),
        (lambda: (sbl.Columns(TABLE) + sbl.Bias()).bind(GRID[:5]), r"have \[5, 48\] rows"),
        (lambda: sbl.Gaussian(1.0).bind(PLANE).evaluate(GRID, [0]), r"x_new has 1 dimensions, .* bound to 2"),
        (lambda: sbl.Linear().bind(PLANE).evaluate(GRID, [0]), r"x_new has 1 dimensions, .* bound to 2"),
        (lambda: sbl.Gaussian(1.0).bind(GRID).evaluate([np.inf], [0]), r"x_new holds 1 NaN or infinite"),
    ],
)
def test_bad_dictionaries_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sbl.Gaussian() + TABLE, r"unites with a dictionary, got ndarray: wrap a matrix in Columns"),
        (lambda: sbl.Gaussian() + sbl.Gaussian, r"unites with a dictionary, got type"),
        (lambda: sbl.Custom(TABLE), r"function must be callable, got ndarray: pass a matrix as Columns"),
    ],
    ids=["matrix", "class", "custom"],
)
def test_wrong_types_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([0.0, np.nan, np.inf], r"x holds 2 NaN or infinite values: remove or impute"),
        ([], r"x is empty, shape \(0, 1\)"),
        (np.empty((0, 2)), r"x is empty, shape \(0, 2\)"),
        (np.zeros((2, 2, 2)), r"x must have shape \(N,\) or \(N, d\), got \(2, 2, 2\)"),
        (3.0, r"x must have shape \(N,\) or \(N, d\), got \(\)"),
        (["a", "b"], r"x must hold numbers, got list"),
        ([[1.0], [1.0, 2.0]], r"x must hold numbers, got list"),
        (None, r"x must have shape"),
    ],
    ids=["nan", "empty", "no rows", "3-D", "number", "strings", "ragged", "none"],
)
@pytest.mark.parametrize(
    "dictionary", [sbl.Gaussian(), sbl.Linear(), sbl.Wavelet("haar")], ids=["kernel", "formula", "wavelet"]
)
def test_bad_inputs_are_refused(dictionary, x, message):
    with pytest.raises(ValueError, match=message):
        dictionary.bind(x)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("haarr", r"name='haarr' is unknown: choose one of .*db"),
        ("bior2.2", r"'bior2.2' is not orthogonal: choose a 'haar'"),
        ("rbio1.3", r"'rbio1.3' is not orthogonal"),
        ("dmey", r"'dmey' is not orthogonal"),
        ("morl", r"name='morl' is unknown"),
    ],
)
def test_wavelets_that_are_no_basis_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        sbl.Wavelet(name)


@pytest.mark.parametrize(
    ("level", "x", "message"),
    [
        (None, np.arange(15), r"x has odd length 15 .* drop a point or pad to 16"),
        (None, [1.0], r"x has odd length 1"),
        (7, np.arange(64), r"level=7 exceeds 6 for length 64 with 'db4': lower it or pad to a multiple of 128"),
        (4, np.arange(24), r"level=4 exceeds 3 for length 24"),
        (None, PLANE, r"x has 2 dimensions and a wavelet basis needs one: use a kernel"),
        (None, np.arange(16)[::-1], r"must be increasing and equally spaced .* steps from -1 to -1"),
        (None, np.zeros(16), r"must be increasing and equally spaced"),
        (None, np.geomspace(1, 2, 16), r"must be increasing and equally spaced"),
        (None, np.delete(np.arange(17), 5), r"equally spaced .* steps from 1 to 2: sort it, resample it"),
    ],
    ids=["odd", "one point", "too deep", "too deep, 24", "2-D", "decreasing", "constant", "unequal", "gap"],
)
def test_grids_without_a_wavelet_basis_are_refused(level, x, message):
    with pytest.raises(ValueError, match=message):
        sbl.Wavelet("db4", level=level).bind(x)


@pytest.mark.parametrize("level", [0, -1, 1.5])
def test_bad_levels_are_refused(level):
    with pytest.raises(ValueError, match=rf"level={level} must be a whole number of at least 1"):
        sbl.Wavelet("haar", level=level)


@pytest.mark.parametrize("x_new", [[-0.6], [16.0], [3.0, 1e9]], ids=["left", "right", "far"])
@pytest.mark.parametrize("method", ["evaluate", "curve", "spread"])
def test_wavelets_do_not_extrapolate(x_new, method):
    design = sbl.Wavelet("db4").bind(np.arange(16))
    arguments = ([0],) if method == "evaluate" else (np.array([0]), np.ones(1))
    with pytest.raises(ValueError, match=r"x_new reaches outside the grid of the wavelet basis, \[0, 15\]"):
        getattr(design, method)(x_new, *arguments)


def test_wavelets_refuse_new_inputs_of_two_dimensions():
    with pytest.raises(ValueError, match="x_new has 2 dimensions and a wavelet basis has one"):
        sbl.Wavelet("db4").bind(np.arange(16)).evaluate(PLANE, [0])
