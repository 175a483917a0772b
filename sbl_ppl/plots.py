"""Pictures of a fit, the share of each part, how the weights shrank; and of a fit beside the posterior.

Every function draws into the axes it is given, or into a new figure, and returns the axes. Matplotlib is imported when
something is drawn, not before. The colours are those of Okabe and Ito, which people with any colour vision can tell
apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .dictionary import Kernel, as_inputs, parts_of
from .map_fit import MapFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray

_DATA, _TRUTH, _FIT, _KEPT = "0.65", "black", "#0072B2", "#D55E00"
_POSTERIOR = "#D55E00"
_PARTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def plot_fit(
    fit: MapFit,
    x_new: Any = None,
    truth: Any = None,
    ax: Axes | None = None,
    noise: bool = False,
) -> Axes:
    """Draw the data, the posterior mean with a band of two standard deviations, and the kept kernels.

    Parameters
    ----------
    fit : MapFit
        A fit with one-dimensional inputs.
    x_new : array of shape (K,), optional
        Where to draw the curve; default the training inputs.
    truth : array of shape (K,) or function, optional
        The noise-free values at the points of the curve, or a function that computes them.
    ax : Axes, optional
        Where to draw; default a new figure.
    noise : bool
        Whether the band is that of a new observation or, by default, of the function alone.

    Returns
    -------
    Axes
        Ticks at its lower edge mark the centres of the kept kernels, if the dictionary has kernels.

    Raises
    ------
    ValueError
        If the inputs are not one-dimensional, or `truth` does not match the curve.
    """
    points = _points_of(fit)
    grid, at, order = _grid_of(points, x_new)
    mean, sd = (values[order] for values in fit.predict(at, noise=noise))
    known = None if truth is None else _curve_from(truth, "truth", grid, order)
    ax = _new_axes(1)[0] if ax is None else ax
    ax.plot(points, fit.t, ".", color=_DATA, markersize=3.5, label="data")
    owner = "a new observation" if noise else "the function"
    ax.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=_FIT, alpha=0.25, lw=0, label=f"±2 sd of {owner}")
    if known is not None:
        ax.plot(grid, known, "--", color=_TRUTH, lw=1.0, label="truth")
    ax.plot(grid, mean, color=_FIT, lw=1.6, label="posterior mean")
    centers = _kept_centers(fit)
    if len(centers):
        label = f"centre{'s' * (len(centers) > 1)} of {len(centers)} kept kernel{'s' * (len(centers) > 1)}"
        edge = np.full(len(centers), 0.02)
        lower = ax.get_xaxis_transform()  # x in units of the data, y from 0 at the lower edge
        ax.plot(centers, edge, "|", color=_KEPT, markersize=11, mew=1.6, transform=lower, label=label)
    ax.set(xlabel="input x", ylabel="target t", title=f"{len(fit.active)} of {fit.n_columns} columns kept")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_contributions(
    fit: MapFit,
    x_new: Any = None,
    truth: Sequence[Any] | None = None,
    axes: Any = None,
) -> Array:
    """Draw what each part of the dictionary contributes to the fit.

    The curves are those of `MapFit.contributions`; with the mean of t, they add up to the fit.

    Parameters
    ----------
    fit : MapFit
        A fit with one-dimensional inputs.
    x_new : array of shape (K,), optional
        Where to draw the curves; default the training inputs.
    truth : sequence, optional
        One entry per part, in order: an array of shape (K,), a function, or None.
    axes : Axes or sequence of Axes, optional
        One for all parts together, or one per part; default a new figure with a panel per part.

    Returns
    -------
    array of Axes

    Raises
    ------
    ValueError
        If the inputs are not one-dimensional, or the number of axes or of truths is not that of the parts.
    """
    points = _points_of(fit)
    grid, at, order = _grid_of(points, x_new)
    parts = parts_of(fit.dictionary, fit.design)
    truth = [None] * len(parts) if truth is None else list(truth)
    if len(truth) != len(parts):
        raise ValueError(f"truth has {len(truth)} entries for {len(parts)} parts: give one for each, or None for some")
    known = [None if entry is None else _curve_from(entry, "truth", grid, order) for entry in truth]
    panels = _new_axes(len(parts)) if axes is None else np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(panels) not in (1, len(parts)):
        raise ValueError(f"axes has {len(panels)} axes for {len(parts)} parts: give one, or one per part")
    together = len(panels) < len(parts)
    curves = fit.contributions(at)
    for k, part in enumerate(parts):
        ax, color = panels[k % len(panels)], _PARTS[k % len(_PARTS)]
        kept = int(((fit.active >= part.start) & (fit.active < part.stop)).sum())
        title = f"{part.name}: {kept} of {part.stop - part.start} columns kept"
        ax.plot(grid, curves[part.name][order], color=color, lw=1.6, label=title if together else "fit")
        if known[k] is not None:
            ax.plot(grid, known[k], "--", color=_TRUTH, lw=1.0, label=None if together else "truth")
        if not together:
            ax.set(title=title)
        if together or known[k] is not None:
            ax.legend(frameon=False, fontsize="small")
        ax.set(ylabel="contribution")
    panels[-1].set(xlabel="input x")
    return panels


def plot_shrinkage(fit: MapFit, ax: Axes | None = None, limit: float | None = None) -> Axes:
    """Draw the posterior means of all weights against their least-squares estimates (SE07 Fig. 6).

    A weight on the diagonal was left alone, one on the horizontal axis was pruned. For an orthonormal dictionary the
    least-squares weights are Phi't; for another they cost O(N M^2).

    Parameters
    ----------
    fit : MapFit
        Inputs may have any dimension.
    ax : Axes, optional
        Where to draw; default a new figure.
    limit : float, optional
        Show only least-squares weights of at most this size; default all.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the least-squares weights are not unique, as for a dictionary with more columns than data, or `limit` is not
        positive.
    """
    if limit is not None and not limit > 0:
        raise ValueError(f"limit={limit!r} must be positive: it bounds the least-squares weights that are shown")
    least_squares = _least_squares(fit)
    means = np.zeros(fit.n_columns)
    means[fit.active] = fit.mean
    kept = np.zeros(fit.n_columns, dtype=bool)
    kept[fit.active] = True
    reach = 1.05 * (np.abs(least_squares).max(initial=0.0) or 1.0) if limit is None else float(limit)
    shown = np.abs(least_squares) <= reach
    ax = _new_axes(1, (4.6, 4.4))[0] if ax is None else ax
    ax.plot([-reach, reach], [-reach, reach], color="0.75", lw=1.0, zorder=0, label="no shrinkage")
    for chosen, color, marker, name in ((~kept, _KEPT, "x", "pruned"), (kept, _FIT, "o", "kept")):
        here = chosen & shown
        count = f"{chosen.sum()}" + f" ({here.sum()} shown)" * bool((chosen & ~shown).any())
        ax.plot(least_squares[here], means[here], marker, color=color, markersize=4, mew=1.0, label=f"{name}: {count}")
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    ax.set(xlabel="least-squares weight", ylabel="posterior mean of the weight")
    ax.set(title=f"{len(fit.active)} of {fit.n_columns} columns kept")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def _points_of(fit: MapFit) -> Array:
    """The training inputs of a fit as a vector."""
    if fit.x is None:
        raise ValueError("fit has no inputs to draw against: give fit_map the x that belongs to the rows of Columns")
    points = as_inputs(fit.x)
    if points.shape[1] != 1:
        raise ValueError(
            f"fit has {points.shape[1]} input dimensions and a curve has one: plot fit.predict(x_new) along a line"
        )
    return points[:, 0]


def _grid_of(points: Array, x_new: Any) -> tuple[Array, Any, Array]:
    """Where to draw a curve, ascending; what to give to `predict` for it; and the order of its values."""
    if x_new is None:
        grid, at = points, None  # predict(None) needs no evaluation of the columns
    else:
        new = as_inputs(x_new, "x_new")
        if new.shape[1] != 1:
            raise ValueError(f"x_new has {new.shape[1]} dimensions and a curve has one: give a vector")
        grid = at = new[:, 0]
    order = np.argsort(grid, kind="stable")
    return grid[order], at, order


def _curve_from(truth: Any, name: str, grid: Array, order: Array) -> Array:
    """Values of a function, or of an array in the order in which the points were given, along the ascending grid."""
    values = np.asarray(truth(grid) if callable(truth) else truth, dtype=np.float64)
    if values.shape != grid.shape:
        raise ValueError(f"{name} has shape {values.shape} and the curve has {len(grid)} points: give a value for each")
    return values if callable(truth) else values[order]


def _kept_centers(fit: MapFit) -> Array:
    """Centres of the kept kernels of a fit with one-dimensional inputs, ascending."""
    found = []
    for dictionary, part in zip(fit.dictionary.parts, parts_of(fit.dictionary, fit.design), strict=True):
        if isinstance(dictionary, Kernel):
            centers = as_inputs(fit.x if dictionary.centers is None else dictionary.centers)[:, 0]
            mine = fit.active[(fit.active >= part.start) & (fit.active < part.stop)]
            found.append(centers[mine - part.start])
    return np.sort(np.concatenate(found)) if found else np.empty(0)


def _least_squares(fit: MapFit) -> Array:
    """Least-squares weights of all columns."""
    centered = fit.t - fit.offset
    if fit.design.orthonormal:
        return fit.design.project(centered)
    norms = fit.design.norms()
    weights, _, rank, _ = np.linalg.lstsq(fit.design.matrix() / np.where(norms > 0, norms, 1.0), centered, rcond=None)
    if rank < fit.n_columns:
        raise ValueError(
            f"the least-squares weights are not unique, {fit.n_columns} columns have rank {rank}: fit a dictionary "
            "with independent columns, such as Wavelet('sym8')"
        )
    return weights / norms


def _new_axes(n: int, size: tuple[float, float] = (7.0, 3.6)) -> Array:
    """Panels of a new figure, one below the other; `size` in inches is that of a figure with one."""
    import matplotlib.pyplot as plt

    size = size if n == 1 else (size[0], 0.7 * n * size[1])
    return plt.subplots(n, 1, figsize=size, sharex=True, squeeze=False, layout="constrained")[1][:, 0]


def plot_comparison(report: Any, columns: int = 20, axes: Any = None) -> Array:
    """Draw the delta function beside the posterior: predictions, how they differ, precisions, and gamma.

    Parameters
    ----------
    report : Comparison
        What `compare` returned.
    columns : int
        How many columns of the dictionary to show, those that matter most under either.
    axes : sequence of four Axes, optional
        Default a new figure.

    Returns
    -------
    array of four Axes
    """
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained")[1]
    top, spread, precisions, gammas = panels = np.ravel(axes)
    _compare_curves(report, top, spread)
    known = report.components
    order = np.argsort(-np.maximum(known["gamma"], known["map_gamma"]))[:columns]
    order = np.sort(order)
    places = np.arange(len(order))
    low, middle, high = (known[name][order] for name in ("alpha_05", "alpha_50", "alpha_95"))
    precisions.vlines(places, low, high, color=_POSTERIOR, lw=4, alpha=0.4, label="posterior, 90 %")
    precisions.plot(places, middle, "_", color=_POSTERIOR, ms=9, mew=2, label="posterior median")
    kept = np.isfinite(known["map_alpha"][order])
    precisions.plot(places[kept], known["map_alpha"][order][kept], "o", color=_FIT, ms=5, label="MAP, if kept")
    precisions.set(yscale="log", ylabel="precision alpha", title="Precisions: a point, or decades")
    gammas.bar(places - 0.2, known["map_gamma"][order], 0.4, color=_FIT, label="MAP")
    gammas.bar(places + 0.2, known["gamma"][order], 0.4, color=_POSTERIOR, label="posterior mean")
    gammas.set(ylim=(0, 1.25), ylabel="gamma", title=f"Who explains the data: {report.displaced:.0%} elsewhere")
    labels = [report.fit.design.labels[k] for k in order]
    for panel in (precisions, gammas):
        panel.set_xticks(places, labels, rotation=90, fontsize=6)
    bottom, top_of_bars = precisions.get_ylim()
    precisions.set_ylim(top=top_of_bars * (top_of_bars / bottom) ** 0.3)  # room for the legend
    for panel in panels:
        panel.legend(frameon=False, fontsize="x-small", loc="upper left")
    return panels


def _compare_curves(report: Any, top: Axes, spread: Axes) -> None:
    fit = report.fit
    points = _points_of(fit)
    grid, _, order = _grid_of(points, report.x)
    delta, posterior = report.delta, report.posterior
    top.plot(points, fit.t, ".", color=_DATA, markersize=3.5, label="data")
    for band, color, name in ((posterior, _POSTERIOR, "posterior"), (delta, _FIT, "delta function")):
        mean, sd = band.mean[order], band.function_sd[order]
        top.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=color, alpha=0.3, lw=0)
        top.plot(grid, mean, color=color, lw=1.4, label=f"{name}, ±2 sd of the function")
    if report.truth is not None:
        top.plot(grid, report.truth[order], "--", color=_TRUTH, lw=1.0, label="truth")
    top.set(xlabel="input x", ylabel="target t", title=f"Prediction: {report.divergence:.2g} nats apart")
    spread.plot(grid, report.function_sd_ratio[order], color=_POSTERIOR, label="sd of the function, posterior / delta")
    spread.plot(grid, report.sd_ratio[order], color=_FIT, label="sd of an observation, posterior / delta")
    spread.plot(grid, report.difference[order], color=_DATA, label="difference of means, in noise sds")
    spread.axhline(1.0, color=_TRUTH, lw=0.6)
    low, high = spread.get_ylim()
    spread.set(xlabel="input x", title="How the two differ", ylim=(low, high + 0.3 * (high - low)))
