"""Pictures of a fit, the share of each part, how the weights shrank; and of a fit beside the posterior.

Every function draws into the axes it is given, or into a new figure, and returns the axes. Legends stand beside the
axes; inside, where the figure has no layout that makes room (``plt.subplots(layout="constrained")`` has).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .canvas import BLUE, DATA, ORANGE, SERIES, TRUTH, add_legend, new_axes
from .checks import flag, instance, positive, whole_number
from .dictionary import Kernel, Pair, as_inputs, as_numbers, parts_of
from .map_fit import MapFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray

_EXPLODED = 30.0  # a ratio from which on a linear axis would flatten all others
_CUT = 1e6  # a ratio beyond which it does not matter how much


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
    flag("noise", noise)
    _check_axes("ax", ax)
    grid, at, order = _grid_of(fit, points, x_new)
    mean, sd = (values[order] for values in fit.predict(at, noise=noise))
    known = None if truth is None else _curve_from(truth, "truth", grid, order)
    ax = new_axes()[0] if ax is None else ax
    ax.plot(points, fit.t, ".", color=DATA, markersize=3.5, label="data")
    owner = "a new observation" if noise else "the function"
    ax.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=BLUE, alpha=0.25, lw=0, label=f"±2 sd of {owner}")
    if known is not None:
        ax.plot(grid, known, "--", color=TRUTH, lw=1.0, label="truth")
    ax.plot(grid, mean, color=BLUE, lw=1.6, label="posterior mean")
    centers = _kept_centers(fit)
    if len(centers):
        label = f"centre{'s' * (len(centers) > 1)} of {len(centers)} kept kernel{'s' * (len(centers) > 1)}"
        edge = np.full(len(centers), 0.02)
        lower = ax.get_xaxis_transform()  # x in units of the data, y from 0 at the lower edge
        ax.plot(centers, edge, "|", color=ORANGE, markersize=11, mew=1.6, transform=lower, label=label)
    ax.set(xlabel="input x", ylabel="target t", title=f"{len(fit.active)} of {fit.n_columns} columns kept")
    add_legend(ax)
    return ax


def plot_contributions(
    fit: MapFit,
    x_new: Any = None,
    truth: Sequence[Any] | None = None,
    axes: Any = None,
) -> Array:
    """Draw what each part of the dictionary contributes to the fit, with a band of two standard deviations.

    The curves are those of `MapFit.contributions`; with the mean of t, they add up to the fit. The bands do not: where
    parts can stand in for one another, each is less certain than their sum.

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
        A part that was pruned and has no truth is named in the first title instead of drawn, unless you gave it axes.

    Raises
    ------
    ValueError
        If the inputs are not one-dimensional, or the number of axes or of truths is not that of the parts.
    """
    points = _points_of(fit)
    grid, at, order = _grid_of(fit, points, x_new)
    parts = parts_of(fit.dictionary, fit.design)
    if truth is not None and (isinstance(truth, str) or not np.iterable(truth)):
        raise ValueError(f"truth={truth!r} must be a sequence: give an array, a function or None for each part")
    truth = [None] * len(parts) if truth is None else list(truth)
    if len(truth) != len(parts):
        raise ValueError(f"truth has {len(truth)} entries for {len(parts)} parts: give one for each, or None for some")
    known = [None if entry is None else _curve_from(entry, "truth", grid, order) for entry in truth]
    given = None if axes is None else np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if given is not None:
        _check_axes("axes", *given)
    if given is not None and len(given) not in (1, len(parts)):
        raise ValueError(f"axes has {len(given)} axes for {len(parts)} parts: give one, or one per part")
    together = given is not None and len(given) < len(parts)
    kept = [int(((fit.active >= part.start) & (fit.active < part.stop)).sum()) for part in parts]
    shown = list(range(len(parts)))
    if given is None or together:
        shown = [k for k in shown if kept[k] or known[k] is not None] or [0]
    curves = fit.contributions(at, with_sd=True)
    panels = new_axes(len(shown)) if given is None else given
    pruned = ", ".join(parts[k].name for k in range(len(parts)) if k not in shown)
    note = f"pruned: {pruned}" if pruned else ""
    for place, k in enumerate(shown):
        ax, color, name = panels[place % len(panels)], SERIES[k % len(SERIES)], parts[k].name
        mean, sd = (values[order] for values in curves[name])
        title = f"{name}: {kept[k]} of {parts[k].stop - parts[k].start} columns kept"
        band = None if together else "±2 sd"
        ax.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=color, alpha=0.25, lw=0, label=band)
        ax.plot(grid, mean, color=color, lw=1.6, label=title if together else "posterior mean")
        if known[k] is not None:
            ax.plot(grid, known[k], "--", color=TRUTH, lw=1.0, label=None if together else "truth")
        if not together:
            ax.set(title=f"{note}\n{title}" if note and not place else title)
        ax.set(ylabel="contribution")
    if together:
        panels[0].set(title=f"Contributions ±2 sd; {note}" if note else "Contributions ±2 sd")
    for ax in panels:
        add_legend(ax)
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
        Show only weights whose two values are of at most this size; the legend counts those outside. Default: all; but
        if the largest is more than ten times what nine in ten of the kept ones reach, twice that reach.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the least-squares weights are not unique, as for a dictionary with more columns than data, or `limit` is not
        positive.
    """
    instance("fit", fit, MapFit, "a MapFit", "call fit_map first")
    _check_axes("ax", ax)
    if limit is not None:
        positive("limit", limit, ": it bounds the weights that are shown")
    least_squares = _least_squares(fit)
    means = np.zeros(fit.n_columns)
    means[fit.active] = fit.mean
    kept = np.zeros(fit.n_columns, dtype=bool)
    kept[fit.active] = True
    size = np.maximum(np.abs(least_squares), np.abs(means))
    if limit is None:
        bulk = np.quantile(size[kept] if kept.any() else size, 0.9, method="lower")
        limit = 2.0 * bulk if size.max() > 10.0 * bulk > 0 else 1.05 * size.max() or 1.0
    reach = float(limit)
    ax = new_axes(1, (4.6, 4.4))[0] if ax is None else ax
    ax.plot([-reach, reach], [-reach, reach], color="0.75", lw=1.0, zorder=0, label="no shrinkage")
    for chosen, color, marker, name in ((~kept, ORANGE, "x", "pruned"), (kept, BLUE, "o", "kept")):
        here, outside = chosen & (size <= reach), int((chosen & (size > reach)).sum())
        label = f"{name}: {chosen.sum()}" + f" ({outside} outside)" * bool(outside)
        ax.plot(least_squares[here], means[here], marker, color=color, markersize=4, mew=1.0, label=label)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    ax.set(xlabel="least-squares weight", ylabel="posterior mean of the weight")
    ax.set(title=f"{len(fit.active)} of {fit.n_columns} columns kept")
    ax.legend(frameon=False, fontsize="small", loc="best")  # shrunken weights leave the upper left free
    return ax


def _points_of(fit: MapFit) -> Array:
    """The training inputs of a fit as a vector."""
    instance("fit", fit, MapFit, "a MapFit", "call fit_map first")
    if fit.x is None:
        raise ValueError("fit has no inputs to draw against: give fit_map the x that belongs to the rows of Columns")
    points = as_inputs(fit.x)
    if points.shape[1] != 1:
        raise ValueError(
            f"fit has {points.shape[1]} input dimensions and a curve has one: plot fit.predict(x_new) along a line"
        )
    return points[:, 0]


def _grid_of(fit: MapFit, points: Array, x_new: Any) -> tuple[Array, Any, Array]:
    """Where to draw a curve, ascending; what to give to `predict` for it; and the order of its values."""
    if x_new is None:
        grid, at = points, None  # predict(None) needs no evaluation of the columns
    else:
        at = fit.inputs(x_new)
        new = as_inputs(at.points if isinstance(at, Pair) else at, "x_new")
        if new.shape[1] != 1:
            raise ValueError(f"x_new has {new.shape[1]} dimensions and a curve has one: give a vector")
        grid = new[:, 0]
    order = np.argsort(grid, kind="stable")
    return grid[order], at, order


def _curve_from(truth: Any, name: str, grid: Array, order: Array) -> Array:
    """Values of a function, or of an array in the order in which the points were given, along the ascending grid."""
    values = as_numbers(truth(grid) if callable(truth) else truth, name)
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


def _check_axes(name: str, *axes: Any) -> None:
    for ax in axes:
        if ax is not None and not hasattr(ax, "plot"):
            raise ValueError(f"{name} must be Matplotlib axes, got {type(ax).__name__}: leave it out for a new figure")


def plot_comparison(report: Any, columns: int = 20, axes: Any = None) -> Array:
    """Draw the delta function beside the posterior: predictions, how they differ, precisions, and gamma.

    Parameters
    ----------
    report : Comparison
        What `compare` returned, for one-dimensional inputs.
    columns : int
        How many columns of the dictionary to show: those whose gamma differs most between the two.
    axes : sequence of four Axes, optional
        Default a new figure.

    Returns
    -------
    array of four Axes
        The second has a logarithmic scale from 1 on if a ratio of standard deviations exceeds 30, and cuts it at 1e6.

    Raises
    ------
    ValueError
        If the inputs are not one-dimensional, `columns` is not a positive whole number, or there are not four axes.
    """
    if not isinstance(getattr(report, "fit", None), MapFit) or not hasattr(report, "components"):
        raise ValueError(f"report must be a Comparison, got {type(report).__name__}: give what compare returned")
    whole_number("columns", columns, 1)
    points = _points_of(report.fit)
    panels = _two_by_two() if axes is None else np.ravel(np.asarray(axes, dtype=object))
    _check_axes("axes", *panels)
    if len(panels) != 4:
        raise ValueError(f"axes has {len(panels)} axes and there are 4 panels: give four, as plt.subplots(2, 2)[1]")
    _compare_curves(report, points, *panels[:2])
    _compare_columns(report, columns, *panels[2:])
    for panel in panels:
        add_legend(panel)
    return panels


def _two_by_two() -> Array:
    """Two rows of two panels; each row has its own margins, because names of columns take much room at the left."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(12, 9), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[3, 4])
    upper, lower = rows[0].subgridspec(1, 2).subplots(), rows[1].subgridspec(1, 2).subplots(sharey=True)
    return np.concatenate([upper, lower])


def _compare_curves(report: Any, points: Array, top: Axes, spread: Axes) -> None:
    grid, _, order = _grid_of(report.fit, points, report.x)
    delta, posterior = report.delta, report.posterior
    top.plot(points, report.fit.t, ".", color=DATA, markersize=3.5, label="data")
    for band, color, name in ((posterior, ORANGE, "posterior"), (delta, BLUE, "delta function")):
        mean, sd = band.mean[order], band.function_sd[order]
        top.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=color, alpha=0.3, lw=0)
        top.plot(grid, mean, color=color, lw=1.4, label=f"{name},\n±2 sd of the function")
    if report.truth is not None:
        top.plot(grid, report.truth[order], "--", color=TRUTH, lw=1.0, label="truth")
    top.set(xlabel="input x", ylabel="target t", title=f"Prediction: {report.divergence:.2g} nats apart")
    highest = 1.0
    for ratio, color, owner in (
        (report.function_sd_ratio, ORANGE, "the function"),
        (report.sd_ratio, BLUE, "an observation"),
    ):
        cut = f"\n(cut at {_CUT:.0e})" * bool(ratio.max() > _CUT)
        drawn = np.minimum(ratio, _CUT)[order]
        spread.plot(grid, drawn, color=color, label=f"sd of {owner},\nposterior / delta{cut}")
        highest = max(highest, drawn.max())
    spread.plot(grid, report.difference[order], color=DATA, label="difference of means,\nin noise sds")
    spread.axhline(1.0, color=TRUTH, lw=0.6)
    if highest > _EXPLODED:
        spread.set_yscale("symlog", linthresh=1.0)  # the difference has a sign, so a plain logarithm would lose it
        spread.set_ylim(2 * min(report.difference.min(), -0.5), 2 * max(report.difference.max(), highest))
    spread.set(xlabel="input x", title="How the two differ")


def _compare_columns(report: Any, columns: int, precisions: Axes, gammas: Axes) -> None:
    known = report.components
    order = np.sort(np.argsort(-np.abs(known["gamma"] - known["map_gamma"]), kind="stable")[:columns])
    places = np.arange(len(order))
    low, middle, high, point = (known[name][order] for name in ("alpha_05", "alpha_50", "alpha_95", "map_alpha"))
    precisions.hlines(places, low, high, color=ORANGE, lw=4, alpha=0.4, label="posterior, 90 %")
    precisions.plot(middle, places, "|", color=ORANGE, ms=9, mew=2, label="posterior median")
    kept = np.isfinite(point)
    precisions.plot(point[kept], places[kept], "o", color=BLUE, ms=5, label="MAP, if kept")
    precisions.set(xscale="log", xlabel="precision alpha", title="Precisions: a point, or decades")
    gammas.barh(places - 0.2, known["map_gamma"][order], 0.4, color=BLUE, label="MAP")
    gammas.barh(places + 0.2, known["gamma"][order], 0.4, color=ORANGE, label="posterior mean")
    gammas.set(xlim=(0, 1), xlabel="gamma", title=f"Who explains the data: {report.displaced:.0%} elsewhere")
    names = [report.fit.design.labels[k] for k in order]
    names = [name if len(name) <= 28 else f"{name[:27]}…" for name in names]
    for panel in (precisions, gammas):
        panel.set_yticks(places, names, fontsize="small")
        panel.set_ylim(len(order) - 0.5, -0.5)
    if len(order) < len(known["gamma"]):
        precisions.set_ylabel(f"the {len(order)} columns that differ most")
