"""Denoising: the plain fit without shifts, equivariance under shifts with all of them, and better than one grid."""

import numpy as np
import pytest

import sbl_ppl as sbl


def test_one_shift_is_the_plain_fit():
    data = sbl.datasets.bumps(256, snr=5.0)
    fit = sbl.fit_map(None, data.t, sbl.Wavelet("sym8"))
    mean, sd = fit.predict(noise=False)
    result = sbl.denoise(data.t, "sym8", shifts=1)
    np.testing.assert_array_equal(result.mean, mean)
    np.testing.assert_allclose(result.sd, sd, rtol=1e-15)
    assert result.noise_variance == fit.noise_variance
    assert result.n_kept == len(fit.active)


def test_all_shifts_commute_with_a_shift_of_the_series():
    data = sbl.datasets.blocks(64, snr=5.0)
    variance = data.noise_sd**2
    still = sbl.denoise(data.t, sbl.Wavelet("haar", level=3), noise_variance=variance, shifts=8)
    moved = sbl.denoise(np.roll(data.t, 5), sbl.Wavelet("haar", level=3), noise_variance=variance, shifts=8)
    # 8 shifts are all that a Haar basis of depth 3 can tell apart
    np.testing.assert_allclose(moved.mean, np.roll(still.mean, 5), rtol=0, atol=1e-12 * np.ptp(data.t))
    np.testing.assert_allclose(moved.sd, np.roll(still.sd, 5), rtol=1e-10)


@pytest.mark.parametrize("name", ["blocks", "bumps", "heavisine", "doppler"])
def test_averaging_lowers_the_error(name):
    """Ten draws: if averaging did nothing, all ten differences would have one sign in 1 of 1024 runs."""
    worse = 0
    for seed in range(10):
        data = getattr(sbl.datasets, name)(512, snr=7.0, seed=seed)
        plain, averaged = (np.mean((sbl.denoise(data.t, shifts=k).mean - data.signal) ** 2) for k in (1, 16))
        worse += averaged > plain
    assert worse == 0


def test_constant_series_stays():
    result = sbl.denoise(np.full(32, 3.0), "haar")
    np.testing.assert_allclose(result.mean, 3.0, rtol=1e-14)
    assert result.n_kept == 0


@pytest.mark.parametrize("shifts", [0, -1, 1.5])
def test_shifts_must_be_a_positive_whole_number(shifts):
    with pytest.raises(ValueError, match=f"shifts={shifts} must be a whole number"):
        sbl.denoise(np.arange(8.0), shifts=shifts)


def test_odd_length_is_refused():
    with pytest.raises(ValueError, match="odd length 7"):
        sbl.denoise(np.arange(7.0))
