"""The papers' signals: noise levels, published variances, jumps, ranges, and what is refused."""

import numpy as np
import pytest
from scipy.stats import norm

from sbl_ppl import datasets

BY_SNR = [
    datasets.sinc,
    datasets.blocks,
    datasets.bumps,
    datasets.heavisine,
    datasets.doppler,
    datasets.blocks_sinc,
    datasets.sinc_2d,
    datasets.friedman1,
    datasets.friedman2,
    datasets.friedman3,
]
BY_SD = [datasets.sinc, datasets.sinc_2d, datasets.friedman1]
ALL = [*BY_SNR, datasets.ripley]
JUMPS = np.array([0.10, 0.13, 0.15, 0.23, 0.25, 0.40, 0.44, 0.65, 0.76, 0.78, 0.81])
HEIGHTS = np.array([4.0, -5.0, 3.0, -4.0, 5.0, -4.2, 2.1, 4.3, -3.1, 2.1, -4.2])


def name_of(make):
    return make.__name__


@pytest.mark.parametrize("make", BY_SNR, ids=name_of)
def test_snr_is_sd_of_signal_over_sd_of_noise(make):
    data = make(n=4000, snr=2.5)
    assert data.noise_sd == pytest.approx(np.std(data.signal, ddof=1) / 2.5, rel=1e-12)
    residual = data.t - data.signal
    # The sample sd of n Gaussian values has a standard error of sd/√(2n).
    assert np.std(residual) == pytest.approx(data.noise_sd, abs=4 * data.noise_sd / np.sqrt(8000))
    assert np.mean(residual) == pytest.approx(0.0, abs=4 * data.noise_sd / np.sqrt(4000))


@pytest.mark.parametrize("make", BY_SD, ids=name_of)
def test_noise_sd_is_an_alternative_to_snr(make):
    by_sd = make(n=50, noise_sd=0.3)
    by_snr = make(n=50, snr=np.std(by_sd.signal, ddof=1) / 0.3)
    assert by_sd.noise_sd == 0.3
    np.testing.assert_allclose(by_sd.t, by_snr.t, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", BY_SNR, ids=name_of)
def test_infinite_snr_gives_the_signal_itself(make):
    data = make(n=64, snr=np.inf)
    assert data.noise_sd == 0.0
    np.testing.assert_array_equal(data.t, data.signal)


@pytest.mark.parametrize(
    ("make", "n", "snr", "variance", "decimals"),
    [
        (datasets.bumps, 128, 2.0, 0.119, 3),
        (datasets.bumps, 128, 7.0, 0.010, 3),
        (datasets.sinc, 128, 2.0, 0.031, 3),
        # The table prints SNR 2 and 0.031 for Doppler; its errors are those of SNR 7.
        (datasets.doppler, 1024, 7.0, 0.0017, 4),
    ],
    ids=["bumps-2", "bumps-7", "sinc-2", "doppler-7"],
)
def test_noise_variance_is_that_of_table_1_of_se07(make, n, snr, variance, decimals):
    assert round(make(n=n, snr=snr).noise_sd ** 2, decimals) == variance


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (datasets.sinc, 0.1),
        (datasets.sinc_2d, 0.1),
        (datasets.friedman1, 1.0),
        (lambda: datasets.sinc(noise="uniform"), 0.1 / np.sqrt(3.0)),
    ],
    ids=["sinc", "sinc_2d", "friedman1", "sinc-uniform"],
)
def test_default_noise_is_the_papers(make, expected):
    assert make().noise_sd == pytest.approx(expected, rel=1e-15)


def test_uniform_noise_fills_its_interval():
    data = datasets.sinc(n=20_000, noise="uniform")
    residual = data.t - data.signal
    assert np.max(np.abs(residual)) <= 0.1
    assert np.max(residual) > 0.099
    assert np.min(residual) < -0.099
    # Fourth moment of a uniform variable: the standard error of its variance is v √(4/5n).
    assert np.var(residual) == pytest.approx(0.01 / 3, abs=4 * 0.01 / 3 * np.sqrt(0.8 / 20_000))


@pytest.mark.parametrize("make", ALL, ids=name_of)
def test_seed_decides_everything(make):
    first, again, other = make(n=40, seed=1), make(n=40, seed=1), make(n=40, seed=2)
    for field in ("x", "t", "signal"):
        np.testing.assert_array_equal(getattr(first, field), getattr(again, field))
    assert np.any(first.t != other.t)


@pytest.mark.parametrize("make", BY_SNR, ids=name_of)
def test_one_seed_at_two_levels_is_the_same_picture(make):
    quiet, loud = make(n=40, snr=8.0, seed=3), make(n=40, snr=2.0, seed=3)
    np.testing.assert_array_equal(quiet.x, loud.x)
    np.testing.assert_allclose(4.0 * (quiet.t - quiet.signal), loud.t - loud.signal, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", ALL, ids=name_of)
def test_shapes_and_types(make):
    data = make(n=np.int64(30))
    assert data.name == make.__name__
    assert data.x.shape[0] == 30
    assert data.t.shape == data.signal.shape == (30,)
    assert data.x.dtype == data.t.dtype == data.signal.dtype == np.float64
    assert len(repr(data)) < 80
    assert data.name in repr(data)
    with pytest.raises(AttributeError):
        data.t = data.signal


def test_sinc_is_one_at_zero_and_zero_at_multiples_of_pi():
    data = datasets.sinc(n=101, snr=np.inf)
    assert data.x[50] == 0.0
    assert data.signal[50] == 1.0
    assert data.x[0] == -10.0
    assert data.x[-1] == 10.0
    np.testing.assert_allclose(data.signal[51:] * data.x[51:], np.sin(data.x[51:]), atol=1e-15)


def test_blocks_jumps_where_and_by_how_much():
    data = datasets.blocks(n=1000, snr=np.inf)  # every jump falls on this grid
    u = (data.x + 10.0) / 20.0
    np.testing.assert_allclose(u, np.arange(1, 1001) / 1000, atol=1e-15)
    step = np.diff(data.signal)
    jump = np.round(1000 * JUMPS).astype(int) - 1  # position in the arrays of the point on the jump
    np.testing.assert_allclose(step[jump], HEIGHTS / 2, atol=1e-12)
    np.testing.assert_allclose(step[jump - 1], HEIGHTS / 2, atol=1e-12)
    assert np.all(np.abs(np.delete(step, [*jump, *(jump - 1)])) < 1e-12)
    np.testing.assert_allclose(data.signal[[0, -1]], [0.0, np.sum(HEIGHTS)], atol=1e-12)


def test_bumps_peak_where_blocks_jump():
    data = datasets.bumps(n=1000, snr=np.inf)
    peak = np.round(1000 * JUMPS).astype(int) - 1
    assert np.all(data.signal[peak] > data.signal[peak - 1])
    assert np.all(data.signal[peak] > data.signal[peak + 1])
    # Each peak holds its own height and a little of its neighbours'.
    np.testing.assert_array_less([4, 5, 3, 4, 5, 4.2, 2.1, 4.3, 3.1, 5.1, 4.2], data.signal[peak])


def test_heavisine_has_two_jumps_of_two():
    data = datasets.heavisine(n=4096, snr=np.inf)
    step = np.abs(np.diff(data.signal))
    largest = np.sort(np.argsort(step)[-2:])
    np.testing.assert_allclose((data.x[largest] + 10.0) / 20.0, [0.3, 0.72], atol=1 / 4096)
    np.testing.assert_allclose(step[largest], 2.0, atol=4 * 4 * np.pi / 4096)  # the sine's largest step
    assert data.signal[2047] == pytest.approx(-2.0, abs=1e-12)  # u = ½


def test_doppler_stays_under_its_envelope():
    data = datasets.doppler(n=512, snr=np.inf)
    u = (data.x + 10.0) / 20.0
    assert np.all(np.abs(data.signal) <= np.sqrt(np.maximum(u * (1.0 - u), 0.0)) + 1e-12)
    assert data.signal[-1] == 0.0
    assert data.signal[255] == pytest.approx(0.5 * np.sin(2.1 * np.pi / 0.55), rel=1e-12)  # u = ½


@pytest.mark.parametrize("n", [4, 256])
def test_blocks_sinc_concatenates_the_two(n):
    data = datasets.blocks_sinc(n=n, snr=np.inf)
    left, right = datasets.blocks(n=n // 2, snr=np.inf), datasets.sinc(n=n // 2, snr=np.inf)
    np.testing.assert_array_equal(data.signal, np.concatenate([left.signal, right.signal]))
    np.testing.assert_allclose(data.x, 20.0 * np.arange(1, n + 1) / n - 10.0, atol=1e-14)


def test_sinc_2d_depends_on_the_radius():
    data = datasets.sinc_2d(n=500, snr=np.inf)
    assert data.x.shape == (500, 2)
    assert np.max(np.abs(data.x)) <= 10.0
    radius = np.linalg.norm(data.x, axis=1)
    np.testing.assert_allclose(data.signal * radius, np.sin(radius), atol=1e-14)


def test_friedman1_ignores_its_last_five_inputs():
    data = datasets.friedman1(n=2000, snr=np.inf)
    assert data.x.shape == (2000, 10)
    assert np.min(data.x) >= 0.0
    assert np.max(data.x) <= 1.0
    assert np.min(data.signal) >= 0.0
    assert np.max(data.signal) <= 30.0
    x1, x2, x3, x4, x5 = data.x[:, :5].T
    expected = 10 * np.sin(np.pi * x1 * x2) + 20 * (x3 - 0.5) ** 2 + 10 * x4 + 5 * x5
    np.testing.assert_allclose(data.signal, expected, rtol=1e-13)


def test_friedman2_and_3_are_modulus_and_angle_of_one_impedance():
    modulus, angle = datasets.friedman2(n=2000, snr=np.inf), datasets.friedman3(n=2000, snr=np.inf)
    np.testing.assert_array_equal(modulus.x, angle.x)
    low, high = [0.0, 40 * np.pi, 0.0, 1.0], [100.0, 560 * np.pi, 1.0, 11.0]
    assert np.all(modulus.x >= low)
    assert np.all(modulus.x <= high)
    assert np.all(modulus.signal >= 0.0)
    assert np.all(modulus.signal <= np.hypot(100.0, 560 * np.pi))
    assert np.all(np.abs(angle.signal) <= np.pi / 2)
    impedance = modulus.signal * np.exp(1j * angle.signal)
    resistance, frequency, inductance, capacitance = modulus.x.T
    expected = resistance + 1j * (frequency * inductance - 1 / (frequency * capacitance))
    np.testing.assert_allclose(impedance, expected, rtol=1e-12)


def test_friedman2_and_3_have_noise_of_a_third_of_the_signal():
    for make in (datasets.friedman2, datasets.friedman3):
        data = make()
        assert data.noise_sd == pytest.approx(np.std(data.signal, ddof=1) / 3, rel=1e-12)


def ripley_densities(x, y):
    modes = [[(-0.7, 0.3), (0.3, 0.3)], [(-0.3, 0.7), (0.4, 0.7)]]
    sd = np.sqrt(0.03)
    return [sum(0.5 * norm.pdf(x, a, sd) * norm.pdf(y, b, sd) for a, b in pair) for pair in modes]


def test_ripley_signal_is_the_posterior_of_class_1():
    data = datasets.ripley(n=300)
    zero, one = ripley_densities(*data.x.T)
    np.testing.assert_allclose(data.signal, one / (zero + one), rtol=1e-10)
    assert set(data.t) == {0.0, 1.0}
    assert np.isnan(data.noise_sd)


def test_ripley_bayes_error():
    grid = np.linspace(-2.5, 2.5, 1001)
    zero, one = ripley_densities(grid[:, None], grid[None, :])
    exact = 0.5 * np.sum(np.minimum(zero, one)) * (grid[1] - grid[0]) ** 2
    assert exact == pytest.approx(0.0893, abs=5e-5)  # T01 says around 8 %
    n = 50_000
    data = datasets.ripley(n=n)
    wrong = np.mean((data.signal > 0.5) != (data.t == 1.0))
    assert wrong == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / n))
    assert np.mean(data.t) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(n))


def test_ripley_classes_have_their_modes():
    data = datasets.ripley(n=20_000)
    for label, modes in enumerate([[(-0.7, 0.3), (0.3, 0.3)], [(-0.3, 0.7), (0.4, 0.7)]]):
        x = data.x[data.t == label]
        spread = np.ptp([a for a, _ in modes]) / 2
        error = 4 * np.sqrt((0.03 + np.array([spread**2, 0.0])) / len(x))
        np.testing.assert_array_less(np.abs(np.mean(x, axis=0) - np.mean(modes, axis=0)), error)
        # Two equal modes ±d apart add d² to the variance; the standard error is at most v √(2/n).
        variance = 0.03 + np.array([spread**2, 0.0])
        np.testing.assert_array_less(np.abs(np.var(x, axis=0) - variance), 4 * variance * np.sqrt(2 / len(x)))


@pytest.mark.parametrize("make", ALL, ids=name_of)
@pytest.mark.parametrize("n", [1, 0, -5, 2.5, "8"])
def test_too_few_points_are_refused(make, n):
    with pytest.raises(ValueError, match=r"^n=.* must be a whole number of at least 2: ask for more points"):
        make(n=n)


@pytest.mark.parametrize("make", BY_SNR, ids=name_of)
@pytest.mark.parametrize("snr", [0.0, -1.0, np.nan])
def test_snr_must_be_positive(make, snr):
    with pytest.raises(ValueError, match=rf"^snr={snr} must be positive.*use snr=np.inf for no noise"):
        make(n=16, snr=snr)


@pytest.mark.parametrize("make", BY_SD, ids=name_of)
@pytest.mark.parametrize("noise_sd", [-0.1, np.nan, np.inf])
def test_noise_sd_must_be_finite_and_not_negative(make, noise_sd):
    with pytest.raises(ValueError, match=rf"^noise_sd={noise_sd} must be finite and at least 0"):
        make(n=16, noise_sd=noise_sd)


@pytest.mark.parametrize("make", BY_SD, ids=name_of)
def test_two_noise_levels_are_refused(make):
    with pytest.raises(ValueError, match=r"snr=2.0 and noise_sd=0.1 both set the noise level: give only one"):
        make(n=16, snr=2.0, noise_sd=0.1)


@pytest.mark.parametrize(("n", "remedy"), [(2, 4), (3, 4), (129, 130)])
def test_blocks_sinc_needs_two_equal_halves(n, remedy):
    with pytest.raises(ValueError, match=rf"^n={n} must be even and at least 4.*use n={remedy}$"):
        datasets.blocks_sinc(n=n)


def test_unknown_noise_is_refused():
    with pytest.raises(ValueError, match=r"^noise='cauchy' is unknown: choose one of \('gaussian', 'uniform'\)"):
        datasets.sinc(noise="cauchy")


def test_snr_of_a_constant_signal_is_refused():
    with pytest.raises(ValueError, match=r"snr=2.0 needs a signal that varies, and sinc at n=2 does not"):
        datasets.sinc(n=2, snr=2.0)  # sin(10)/10 twice
