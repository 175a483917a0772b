"""Pictures: what is drawn is what the fit says, in the axes that were given, and bad input is refused with a remedy."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt

import sbl_ppl as sbl
from sbl_ppl.plots import plot_contributions, plot_fit, plot_shrinkage


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return sbl.datasets.sinc(64, snr=5.0)


@pytest.fixture(scope="module")
def kernel_fit(data):
    return sbl.fit_map(data.x, data.t, sbl.Gaussian(width=3.0) + sbl.Bias())


@pytest.fixture(scope="module")
def wavelet_fit(data):
    return sbl.fit_map(data.x, data.t, sbl.Wavelet("sym8"))


@pytest.fixture(scope="module")
def union_fit(data):
    return sbl.fit_map(data.x, data.t, sbl.Wavelet("haar") + sbl.Gaussian(width=3.0))


def line(ax, start):
    """The only line whose label begins with `start`."""
    (found,) = [each for each in ax.lines if each.get_label().startswith(start)]
    return found


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def assert_beside(ax):
    """The legend stands right of the axes and within the figure."""
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    assert box.x0 >= ax.bbox.x1
    assert box.x1 <= ax.figure.bbox.x1


def band(ax):
    """Lower and upper edge of the filled band at its points, ascending in x."""
    vertices = ax.collections[0].get_paths()[0].vertices
    return {x: (vertices[vertices[:, 0] == x, 1].min(), vertices[vertices[:, 0] == x, 1].max()) for x in vertices[:, 0]}


class TestPlotFit:
    def test_draws_data_mean_truth_and_kept_centres(self, data, kernel_fit):
        ax = plot_fit(kernel_fit, truth=data.signal)
        np.testing.assert_array_equal(line(ax, "data").get_xydata(), np.stack([data.x, data.t], axis=1))
        np.testing.assert_array_equal(line(ax, "posterior mean").get_ydata(), kernel_fit.predict()[0])
        np.testing.assert_array_equal(line(ax, "truth").get_ydata(), data.signal)
        kept = kernel_fit.active[kernel_fit.active < len(data.x)]
        np.testing.assert_array_equal(line(ax, "centre").get_xdata(), data.x[kept])
        assert f"centres of {len(kept)} kept kernels" in legend_texts(ax)
        assert ax.get_xlabel() == "input x"
        assert ax.get_ylabel() == "target t"
        assert ax.get_title() == f"{len(kernel_fit.active)} of 65 columns kept"

    @pytest.mark.parametrize(("noise", "owner"), [(False, "the function"), (True, "a new observation")])
    def test_band_is_two_sd(self, data, kernel_fit, noise, owner):
        ax = plot_fit(kernel_fit, noise=noise)
        mean, sd = kernel_fit.predict(noise=noise)
        edges = band(ax)
        for x, m, s in zip(data.x, mean, sd, strict=True):
            np.testing.assert_allclose(edges[x], (m - 2 * s, m + 2 * s), rtol=1e-12, atol=1e-12)
        assert f"±2 sd of {owner}" in legend_texts(ax)

    def test_draws_into_given_axes(self, kernel_fit):
        _, ax = plt.subplots()
        assert plot_fit(kernel_fit, ax=ax) is ax
        assert len(plt.get_fignums()) == 1

    def test_legend_stands_beside(self, data, kernel_fit):
        assert_beside(plot_fit(kernel_fit, truth=data.signal))
        _, axes = plt.subplots(2, layout="constrained")
        assert_beside(plot_fit(kernel_fit, ax=axes[1]))

    def test_legend_stays_in_axes_that_have_no_room_beside(self, kernel_fit):
        figure, axes = plt.subplots(1, 2)
        ax = plot_fit(kernel_fit, ax=axes[1])
        figure.canvas.draw()
        assert ax.get_legend().get_window_extent().x1 <= ax.bbox.x1

    def test_new_inputs_in_any_order_make_one_curve(self, kernel_fit):
        x_new = np.array([4.0, -12.0, 0.5])
        ax = plot_fit(kernel_fit, x_new=x_new, truth=np.array([40.0, -120.0, 5.0]))
        mean, _ = kernel_fit.predict(np.sort(x_new))
        np.testing.assert_array_equal(line(ax, "posterior mean").get_xdata(), np.sort(x_new))
        np.testing.assert_allclose(line(ax, "posterior mean").get_ydata(), mean, rtol=1e-12)
        np.testing.assert_array_equal(line(ax, "truth").get_ydata(), 10 * np.sort(x_new))

    def test_unsorted_training_inputs_make_one_curve(self, data):
        order = np.random.default_rng(0).permutation(len(data.x))
        fit = sbl.fit_map(data.x[order], data.t[order], sbl.Gaussian(width=3.0))
        ax = plot_fit(fit, truth=data.signal[order])
        np.testing.assert_array_equal(line(ax, "posterior mean").get_xdata(), data.x)
        np.testing.assert_array_equal(line(ax, "truth").get_ydata(), data.signal)

    def test_truth_may_be_a_function(self, data, kernel_fit):
        ax = plot_fit(kernel_fit, truth=np.cos)
        np.testing.assert_array_equal(line(ax, "truth").get_ydata(), np.cos(data.x))

    def test_own_centres_are_marked(self, data):
        centers = np.linspace(-12.0, 12.0, 9)
        fit = sbl.fit_map(data.x, data.t, sbl.Bias() + sbl.Gaussian(width=3.0, centers=centers))
        kept = fit.active[fit.active > 0] - 1
        np.testing.assert_array_equal(line(plot_fit(fit), "centre").get_xdata(), centers[kept])

    def test_wavelets_have_no_centres(self, wavelet_fit):
        assert not [text for text in legend_texts(plot_fit(wavelet_fit)) if "centre" in text]

    def test_x_none_counts_the_points(self, data):
        ax = plot_fit(sbl.fit_map(None, data.t, sbl.Wavelet("haar")))
        np.testing.assert_array_equal(line(ax, "data").get_xdata(), np.arange(len(data.t)))

    def test_columns_with_inputs(self, data):
        ax = plot_fit(sbl.fit_map(data.x, data.t, sbl.Columns(np.stack([data.x, np.cos(data.x)], axis=1))))
        np.testing.assert_array_equal(line(ax, "posterior mean").get_xdata(), data.x)

    def test_empty_model(self, data):
        ax = plot_fit(sbl.fit_map(data.x, np.ones(len(data.x)), sbl.Gaussian(width=3.0)))
        np.testing.assert_allclose(line(ax, "posterior mean").get_ydata(), 1.0)


class TestPlotContributions:
    def test_one_panel_per_part(self, data, union_fit):
        axes = plot_contributions(union_fit, truth=[None, data.signal])
        assert axes.shape == (2,)
        for ax, (name, curve) in zip(axes, union_fit.contributions().items(), strict=True):
            np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([data.x, curve], axis=1))
            assert ax.get_title().startswith(f"{name}: ")
            assert ax.get_ylabel() == "contribution"
            assert_beside(ax)
        assert legend_texts(axes[0]) == ["±2 sd", "posterior mean"]
        assert legend_texts(axes[1]) == ["±2 sd", "posterior mean", "truth"]
        assert [ax.get_xlabel() for ax in axes] == ["", "input x"]
        kept = [int(ax.get_title().split(": ")[1].split()[0]) for ax in axes]
        assert sum(kept) == len(union_fit.active)

    def test_bands_are_two_sd_of_each_part(self, data, union_fit):
        """From the dense matrix and the covariance of the part's own weights."""
        Phi, S, active = union_fit.design.matrix(), union_fit.covariance, union_fit.active
        for ax, wavelets in zip(plot_contributions(union_fit), (True, False), strict=True):
            mine = (active < 64) == wavelets
            values = Phi[:, active[mine]]
            mean, sd = values @ union_fit.mean[mine], np.sqrt(np.diag(values @ S[mine][:, mine] @ values.T))
            edges = band(ax)
            for x, m, s in zip(data.x, mean, sd, strict=True):
                np.testing.assert_allclose(edges[x], (m - 2 * s, m + 2 * s), rtol=1e-9, atol=1e-9)

    def test_a_pruned_part_is_named_and_not_drawn(self, data, kernel_fit):
        assert len(data.x) not in kernel_fit.active  # the bias, in the column behind the kernels
        (ax,) = plot_contributions(kernel_fit)
        assert ax.get_title() == f"pruned: Bias\nGaussian(3.0): {len(kernel_fit.active)} of 64 columns kept"
        (ax,) = plot_contributions(kernel_fit, axes=plt.subplots()[1])
        assert len(ax.lines) == 1
        assert "pruned: Bias" in ax.get_title()

    def test_a_pruned_part_is_drawn_beside_its_truth_or_where_it_was_given_axes(self, data, kernel_fit):
        wanted = plot_contributions(kernel_fit, truth=[None, np.ones(64)])
        given = plot_contributions(kernel_fit, axes=plt.subplots(2)[1])
        for panels in (wanted, given):
            assert [ax.get_title().split(":")[0] for ax in panels] == ["Gaussian(3.0)", "Bias"]
            assert not panels[1].lines[0].get_ydata().any()

    def test_empty_model_has_one_panel(self, data):
        fit = sbl.fit_map(data.x, np.ones(len(data.x)), sbl.Gaussian(width=3.0) + sbl.Bias())
        (ax,) = plot_contributions(fit)
        assert ax.get_title() == "pruned: Bias\nGaussian(3.0): 0 of 64 columns kept"

    def test_panels_add_up_to_the_fit(self, union_fit):
        total = sum(ax.lines[0].get_ydata() for ax in plot_contributions(union_fit)) + union_fit.offset
        np.testing.assert_allclose(total, union_fit.curve(), rtol=0, atol=1e-12)

    def test_one_axes_for_all_parts(self, union_fit):
        _, ax = plt.subplots()
        (drawn,) = plot_contributions(union_fit, axes=ax)
        assert drawn is ax
        assert len(ax.lines) == 2
        assert [text.split(":")[0] for text in legend_texts(ax)] == list(union_fit.contributions())
        assert ax.lines[0].get_color() != ax.lines[1].get_color()

    def test_given_panels(self, union_fit):
        _, panels = plt.subplots(2)
        assert all(plot_contributions(union_fit, axes=panels) == panels)

    def test_single_part(self, wavelet_fit):
        (ax,) = plot_contributions(wavelet_fit)
        assert ax.get_title().startswith("Wavelet(sym8): ")

    def test_new_inputs(self, union_fit):
        x_new = union_fit.x[[9, 2, 5]]
        axes = plot_contributions(union_fit, x_new=x_new, truth=[[3.0, 1.0, 2.0], None])
        np.testing.assert_array_equal(axes[0].lines[0].get_xdata(), np.sort(x_new))
        np.testing.assert_array_equal(axes[0].lines[1].get_ydata(), [1.0, 2.0, 3.0])


class TestPlotShrinkage:
    def test_orthonormal_weights_are_projections(self, data, wavelet_fit):
        ax = plot_shrinkage(wavelet_fit)
        z = wavelet_fit.design.matrix().T @ (data.t - data.t.mean())
        kept, pruned = line(ax, "kept"), line(ax, "pruned")
        np.testing.assert_allclose(kept.get_xdata(), z[wavelet_fit.active], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(kept.get_ydata(), wavelet_fit.mean)
        np.testing.assert_allclose(pruned.get_xdata(), np.delete(z, wavelet_fit.active), rtol=0, atol=1e-12)
        assert not pruned.get_ydata().any()
        assert kept.get_label() == f"kept: {len(wavelet_fit.active)}"
        assert ax.get_xlabel() == "least-squares weight"
        assert ax.get_ylabel() == "posterior mean of the weight"

    def test_independent_columns_of_any_units(self, data):
        x = np.random.default_rng(0).standard_normal((64, 3))
        units = np.array([1.0, 1e-6, 1e6])
        fit = sbl.fit_map(x * units, x @ [1.0, -2.0, 0.5] + 0.1 * data.t, sbl.Linear())
        ax = plot_shrinkage(fit, limit=1e7)
        expected = np.linalg.lstsq(x - x.mean(axis=0), fit.t, rcond=None)[0] / units
        np.testing.assert_allclose(line(ax, "kept").get_xdata(), expected[fit.active], rtol=1e-9)

    def test_limit_hides_large_weights_and_says_so(self, wavelet_fit):
        limit = float(np.median(np.abs(wavelet_fit.mean)))
        ax = plot_shrinkage(wavelet_fit, limit=limit)
        shown = line(ax, "kept").get_xdata()
        assert np.abs(shown).max(initial=0.0) <= limit
        assert ax.get_xlim() == ax.get_ylim() == (-limit, limit)
        outside = len(wavelet_fit.active) - len(shown)
        assert line(ax, "kept").get_label() == f"kept: {len(wavelet_fit.active)} ({outside} outside)"

    def test_one_huge_weight_does_not_squeeze_the_rest(self, data, wavelet_fit):
        """All but one weight are those of the plain fit; it is a thousand times as large as any of them."""
        largest = np.abs(wavelet_fit.mean).max()
        fit = sbl.fit_map(data.x, data.t + 1e3 * largest * wavelet_fit.design.columns(20), sbl.Wavelet("sym8"))
        ax = plot_shrinkage(fit)
        assert ax.get_xlim()[1] < 3 * largest
        assert line(ax, "kept").get_label() == f"kept: {len(fit.active)} (1 outside)"

    def test_a_mean_outside_the_frame_is_counted(self):
        """Two columns nearly the same: least squares gives each a weight of 1, the fit gives 2 to one of them."""
        rng = np.random.default_rng(0)
        first, other, noise = np.linalg.qr(rng.standard_normal((20, 3)))[0].T * np.sqrt(20)
        second = first + 0.1 * other
        fit = sbl.fit_map(None, first + second + 0.3 * noise, sbl.Columns(np.stack([first, second], 1)), center=False)
        assert len(fit.active) == 1
        ax = plot_shrinkage(fit, limit=1.5)
        assert line(ax, "kept").get_label() == "kept: 1 (1 outside)"

    def test_draws_into_given_axes(self, wavelet_fit):
        _, ax = plt.subplots()
        assert plot_shrinkage(wavelet_fit, ax=ax) is ax


class TestErrors:
    @pytest.mark.parametrize("plot", [plot_fit, plot_contributions])
    def test_two_inputs(self, plot):
        data = sbl.datasets.sinc_2d(40)
        plane_fit = sbl.fit_map(data.x, data.t, sbl.Gaussian(width=3.0))
        with pytest.raises(ValueError, match=r"2 input dimensions .* plot fit.predict\(x_new\) along a line"):
            plot(plane_fit)
        assert not plt.get_fignums()

    @pytest.mark.parametrize("plot", [plot_fit, plot_contributions])
    def test_no_inputs(self, data, plot):
        fit = sbl.fit_map(None, data.t, sbl.Columns(np.cos(data.x)))
        with pytest.raises(ValueError, match="no inputs to draw against: give fit_map the x"):
            plot(fit)

    def test_new_inputs_of_two_dimensions(self, kernel_fit):
        with pytest.raises(ValueError, match="x_new has 2 dimensions and a curve has one: give a vector"):
            plot_fit(kernel_fit, x_new=np.zeros((3, 2)))

    def test_truth_of_wrong_length(self, kernel_fit):
        with pytest.raises(ValueError, match=r"truth has shape \(3,\) and the curve has 64 points"):
            plot_fit(kernel_fit, truth=np.zeros(3))
        assert not plt.get_fignums()

    def test_truths_and_axes_must_match_the_parts(self, data, union_fit):
        with pytest.raises(ValueError, match="truth has 1 entries for 2 parts: give one for each"):
            plot_contributions(union_fit, truth=[data.signal])
        with pytest.raises(ValueError, match="axes has 3 axes for 2 parts: give one, or one per part"):
            plot_contributions(union_fit, axes=plt.subplots(3)[1])

    def test_least_squares_must_be_unique(self, union_fit):
        with pytest.raises(ValueError, match="128 columns have rank 63: fit a dictionary with independent columns"):
            plot_shrinkage(union_fit)

    def test_limit_must_be_positive(self, wavelet_fit):
        for limit in (0, np.inf):
            with pytest.raises(ValueError, match=f"limit={limit} must be positive and finite"):
                plot_shrinkage(wavelet_fit, limit=limit)
        assert not plt.get_fignums()


def test_import_does_not_load_matplotlib():
    code = "import sys, sbl_ppl.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
