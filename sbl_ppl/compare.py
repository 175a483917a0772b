"""The delta function beside the posterior: what a point estimate of the hyperparameters hid.

T01 section 2.2 replaces the posterior of (alpha, sigma^2) by a delta function at its mode and argues that this need not
describe the hyperparameters if only it predicts as well (T01 eq. 14):

    int p(t* | alpha, sigma^2) delta(alpha_MP, sigma^2_MP) = int p(t* | alpha, sigma^2) p(alpha, sigma^2 | t).

`compare` tests both claims. Prediction is judged by observations that were held out: the posterior's by importance
sampling over the draws, the delta function's by finding the MAP anew without them, because its precisions would have
seen them otherwise. Beside it stands the Kullback-Leibler divergence from the posterior predictive to the delta
function's, taken as Gaussians: the nats that a new observation costs on average if the posterior is right. The
hyperparameters are judged by where the degrees of freedom are, and by how widely the precisions of the kept columns are
spread.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import arviz_io
from .dictionary import as_numbers
from .map_fit import MapFit
from .posterior import predict
from .refitting import held_out_terms
from .sampling import hyperparameters

Array = np.ndarray

_INDISTINGUISHABLE = 0.01  # nats per observation: a hundred new ones would not tell the two apart
_APART = 0.1
_SAME_COMPONENTS = 0.1  # share of the degrees of freedom that stand elsewhere
_SAME_PRECISION = 10.0  # factor between the 5 % and 95 % quantile of alpha


@dataclass(frozen=True, repr=False)
class Comparison:
    """A fit and the posterior side by side; print it, or draw it with `plot_comparison`.

    Attributes
    ----------
    fit : MapFit
    x : array
        The grid, None for the training inputs.
    delta, posterior : Prediction
        Mean, sd of the function and sd of a new observation on the grid.
    noise_sd : float
        Of the fit, the unit of differences.
    elpd : dict
        Held-out results "posterior" and "delta", as `az.compare` takes them. The latter is missing for a wavelet basis
        of more than 4096 points, where leaving one out would take a matrix of that size.
    truth : array or None
    components : dict of arrays of shape (M,)
        map_alpha (inf if pruned), alpha_05, alpha_50, alpha_95, map_gamma, gamma, inclusion (share of draws with gamma
        above 1/2), map_weight, weight, weight_sd.
    noise_variance : dict
        "map", "mean", "q05", "q50", "q95", and "map_quantile", the share of draws below the MAP's.
    degrees_of_freedom : dict
        "map", "mean", "q05", "q95".
    """

    fit: MapFit
    x: Any
    delta: Prediction
    posterior: Prediction
    noise_sd: float
    elpd: dict[str, Any]
    truth: Array | None
    components: dict[str, Array]
    noise_variance: dict[str, float]
    degrees_of_freedom: dict[str, float]

    @property
    def difference(self) -> Array:
        """Posterior mean minus the delta function's on the grid, in noise standard deviations."""
        return (self.posterior.mean - self.delta.mean) / self.noise_sd

    @property
    def sd_ratio(self) -> Array:
        """Sd of a new observation under the posterior over that under the delta function."""
        return self.posterior.sd / self.delta.sd

    @property
    def function_sd_ratio(self) -> Array:
        """The same for the function without noise, where the delta function's overconfidence shows most."""
        return self.posterior.function_sd / np.maximum(self.delta.function_sd, 1e-300)

    @property
    def divergence(self) -> float:
        """Mean Kullback-Leibler divergence on the grid, in nats per new observation."""
        p, q = self.posterior, self.delta
        ratio = (p.sd / q.sd) ** 2
        return float(np.mean(0.5 * (ratio - 1 - np.log(ratio) + ((p.mean - q.mean) / q.sd) ** 2)))

    @property
    def elpd_difference(self) -> tuple[float, float]:
        """Held-out elpd of the posterior minus that of the delta function, and its standard error; NaN if unknown."""
        if "delta" not in self.elpd:
            return np.nan, np.nan
        terms = [arviz_io.elpd_terms(self.elpd[name])[0] for name in ("posterior", "delta")]
        each = terms[0] - terms[1]
        return float(each.sum()), float(np.sqrt(len(each) * each.var()))

    @property
    def coverage(self) -> dict[str, float] | None:
        """Share of the grid at which the truth lies in the 95 % interval of the function; None without a truth."""
        if self.truth is None:
            return None
        bands = {"delta": self.delta, "posterior": self.posterior}
        return {
            name: float(np.mean(np.abs(self.truth - band.mean) <= 1.96 * band.function_sd))
            for name, band in bands.items()
        }

    @property
    def displaced(self) -> float:
        """Share of the degrees of freedom, 0 to 1, that the posterior has in other columns than the MAP."""
        here, there = self.components["map_gamma"], self.components["gamma"]
        return float(np.abs(here - there).sum() / max((here + there).sum(), 1e-300))

    @property
    def precision_factor(self) -> float:
        """Factor between the 5 % and 95 % quantile of a kept column's precision, the median over kept columns."""
        kept = self.fit.active
        if not len(kept):
            return 1.0
        return float(np.median(self.components["alpha_95"][kept] / self.components["alpha_05"][kept]))

    @property
    def verdict(self) -> str:
        """Whether the delta function is good here, for prediction and for the hyperparameters, in words."""
        nats, (change, se) = self.divergence, self.elpd_difference
        quality = "little" if nats < _INDISTINGUISHABLE else "something" if nats < _APART else "a lot"
        held_out = ""
        if np.isfinite(change):
            seen = abs(change) > 2 * se
            winner = "the posterior" if change > 0 else "the delta function"
            held_out = (
                f"Observations that were held out favour {winner} by {abs(change):.2g} ± {se:.2g} nats in all"
                + ("." if seen else ": too little to tell.")
            )
        same = self.displaced < _SAME_COMPONENTS and self.precision_factor < _SAME_PRECISION
        return (
            f"{held_out} If the posterior is right, the delta function loses {quality} in prediction, {nats:.2g} nats "
            f"a new observation. It is {'a good' if same else 'no'} description of the hyperparameters: "
            f"{self.displaced:.0%} of the degrees of freedom are in other columns than the MAP's, and the precision of "
            f"a kept column is known within a factor of {self.precision_factor:.2g}."
        ).strip()

    def table(self) -> Any:
        """`az.compare` of the held-out results, a pandas DataFrame."""
        return arviz_io.compare_elpd(self.elpd)

    def to_dataframe(self) -> Any:
        """One row per column of the dictionary, a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.components, index=pandas.Index(self.fit.design.labels, name="basis"))

    def __repr__(self) -> str:
        change, se = self.elpd_difference
        noise, dof = self.noise_variance, self.degrees_of_freedom
        bad = int(np.sum(arviz_io.elpd_terms(self.elpd["posterior"])[1] > 0.7))
        rows: list[tuple[str, ...]] = [
            ("", "delta function", "posterior", ""),
            ("noise sd", f"{noise['map'] ** 0.5:.4g}", f"{noise['q50'] ** 0.5:.4g}", _interval(noise, 0.5)),
            ("degrees of freedom", f"{dof['map']:.4g}", f"{dof['mean']:.4g}", _interval(dof)),
        ]
        known = [f"{_total(self.elpd[k]):.2f}" if k in self.elpd else "unknown" for k in ("delta", "posterior")]
        note = f"difference {change:+.2f} ± {se:.2f}" * bool(np.isfinite(change)) + f", {bad} Pareto k > 0.7" * bool(
            bad
        )
        rows.append(("held-out elpd", *known, note))
        if self.coverage:
            rows.append(("truth in 95 % band", *(f"{self.coverage[k]:.1%}" for k in ("delta", "posterior")), ""))
        lines = [f"{a:<22}{b:>16}{c:>14}   {d}".rstrip() for a, b, c, d in rows]
        lines.append(
            f"on the grid: means differ by up to {np.abs(self.difference).max():.3g} noise sds; the function's sd is "
            f"{np.median(self.function_sd_ratio):.3g} times the delta function's (median)"
        )
        lines.append(f"{'strongest columns':<28}{'MAP alpha':>12}{'5 %':>11}{'95 %':>11}{'MAP gamma':>11}{'gamma':>8}")
        columns, labels = self.components, self.fit.design.labels
        for k in np.argsort(-np.maximum(columns["gamma"], columns["map_gamma"]))[:8]:
            alpha = f"{columns['map_alpha'][k]:.4g}" if np.isfinite(columns["map_alpha"][k]) else "pruned"
            lines.append(
                f"{labels[k][:27]:<28}{alpha:>12}{columns['alpha_05'][k]:>11.3g}{columns['alpha_95'][k]:>11.3g}"
                f"{columns['map_gamma'][k]:>11.3f}{columns['gamma'][k]:>8.3f}"
            )
        return "\n".join([*lines, textwrap.fill(self.verdict, 98)])


@dataclass(frozen=True)
class Prediction:
    """Mean, sd of the function and sd of a new observation on a grid."""

    mean: Array
    function_sd: Array
    sd: Array


def compare(fit: MapFit, post: Any, x_new: Any = None, truth: Any = None, max_draws: int = 1000) -> Comparison:
    """Put the delta-function approximation beside the posterior.

    Parameters
    ----------
    fit : MapFit
        The point estimate.
    post : ArviZ object
        What `sample` returned for it.
    x_new : array, optional
        A grid of inputs; default the training inputs.
    truth : array, optional
        Noise-free values on the grid, for the coverage.
    max_draws : int
        Draws to use at most for the predictions.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If `post` was drawn for other data or another dictionary, or has fewer than four draws a chain.
    """
    alpha, noise_variance = hyperparameters(fit, post, max_draws)
    draws = arviz_io.group(post, "posterior").sizes["draw"]
    if draws < 4:
        raise ValueError(f"post has {draws} draws a chain, and leave-one-out needs at least 4: sample more")
    mean, variance = predict(fit.problem(), alpha, noise_variance, fit.inputs(x_new))
    function = fit.scale**2 * (variance.mean(0) + mean.var(0))
    noise = fit.scale**2 * noise_variance.mean()
    known = None if truth is None else as_numbers(truth, "truth")
    if known is not None and known.shape != function.shape:
        raise ValueError(f"truth has shape {known.shape}, the grid {function.shape}: give one value a point")
    smooth, noisy = (fit.predict(x_new, noise, augment=False) for noise in (False, True))
    loo = arviz_io.elpd(post)
    terms = held_out_terms(fit)
    delta = {} if terms is None else {"delta": arviz_io.point_elpd(loo, terms)}
    return Comparison(
        fit=fit,
        x=x_new,
        delta=Prediction(smooth[0], smooth[1], noisy[1]),
        posterior=Prediction(fit.offset + fit.scale * mean.mean(0), np.sqrt(function), np.sqrt(function + noise)),
        noise_sd=float(np.sqrt(fit.noise_variance)),
        elpd={"posterior": loo, **delta},
        truth=known,
        components=_components(fit, post),
        **_summaries(fit, post),
    )


def _components(fit: MapFit, post: Any) -> dict[str, Array]:
    posterior = arviz_io.group(post, "posterior")
    each = ("chain", "draw")
    quantiles = posterior["alpha"].quantile((0.05, 0.5, 0.95), each).values
    known = {"map_alpha": np.inf, "map_gamma": 0.0, "map_weight": 0.0}
    full = {name: np.full(fit.n_columns, value) for name, value in known.items()}
    for name, value in zip(full, (fit.alpha, fit.gamma, fit.mean), strict=True):
        full[name][fit.active] = value
    full |= {"alpha_05": quantiles[0], "alpha_50": quantiles[1], "alpha_95": quantiles[2]}
    weights = posterior["weights"]
    return full | {
        "gamma": posterior["gamma"].mean(each).values,
        "inclusion": (posterior["gamma"] > 0.5).mean(each).values,
        "weight": weights.mean(each).values,
        "weight_sd": weights.std(each).values,
    }


def _summaries(fit: MapFit, post: Any) -> dict[str, dict[str, float]]:
    posterior = arviz_io.group(post, "posterior")

    def summary(name: str, point: float) -> dict[str, float]:
        values = posterior[name].values.ravel()
        q05, q50, q95 = np.quantile(values, (0.05, 0.5, 0.95))
        below = float(np.mean(values < point))
        found = {"map": point, "mean": values.mean(), "q05": q05, "q50": q50, "q95": q95, "map_quantile": below}
        return {key: float(value) for key, value in found.items()}

    return {
        "noise_variance": summary("noise_variance", fit.noise_variance),
        "degrees_of_freedom": summary("degrees_of_freedom", fit.degrees_of_freedom),
    }


def _interval(summary: dict[str, float], power: float = 1.0) -> str:
    return f"90 % in {summary['q05'] ** power:.3g} .. {summary['q95'] ** power:.3g}"


def _total(result: Any) -> float:
    return float(arviz_io.elpd_terms(result)[0].sum())
