"""Arrays into ArviZ and back, and the only file that knows which ArviZ is installed.

ArviZ 0.23 keeps draws in an `InferenceData`, ArviZ 1.x in xarray's `DataTree`. Both hold the same groups and dimensions
here, and both are written to netCDF beside the target and renamed, so that a kill in mid-write destroys nothing.

`elpd` and `point_elpd` give leave-one-out results of draws, and of a point estimate, that `az.compare` takes side by
side: the terms of a point estimate do not vary from draw to draw, and `az.loo` fails on such.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .checks import file_path
from .storage import reading, written_beside

Array = np.ndarray

_ENGINE = "h5netcdf"  # the one that both generations write


_FILTERS = threading.RLock()


@contextmanager
def _ignoring(category: type[Warning] = Warning, message: str = "") -> Iterator[None]:
    """Without such warnings. One thread at a time: filters are the process's, and two would put back each other's."""
    with _FILTERS, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, category)
        yield


@functools.cache
def _arviz() -> Any:
    with _ignoring(FutureWarning):  # 0.23 announces 1.x
        import arviz
    return arviz


def _is_tree() -> bool:
    """Whether ArviZ is 1.x. By its version: to ask 1.x for the name `InferenceData` makes it warn."""
    return int(_arviz().__version__.split(".")[0]) >= 1


def to_arviz(
    groups: Mapping[str, Mapping[str, tuple[tuple[str, ...], Any]]], coords: Mapping[str, Any], attrs: Mapping[str, Any]
) -> Any:
    """An ArviZ object out of groups of variables, each a pair of dimensions and array.

    Dimensions without coordinates are numbered. `attrs`, numbers and strings, go to the posterior.
    """
    import xarray

    sets = {}
    for name, variables in groups.items():
        data = xarray.Dataset(dict(variables))
        data = data.assign_coords({dim: coords.get(str(dim), np.arange(size)) for dim, size in data.sizes.items()})
        sets[name] = data.assign_attrs(inference_library="sbl_ppl", **(attrs if name == "posterior" else {}))
    return xarray.DataTree.from_dict(sets) if _is_tree() else _arviz().InferenceData(**sets)


def group(data: Any, name: str) -> Any:
    """A group as an xarray Dataset, whichever ArviZ made the object."""
    try:
        found = data[name]
    except (KeyError, TypeError) as error:
        raise ValueError(f"post, a {type(data).__name__}, has no group {name!r}: give what sample returned") from error
    return found.to_dataset() if _is_tree() else found


def write_netcdf(data: Any, path: Any) -> Path:
    """Write an ArviZ object to one netCDF file, beside the target and renamed: a kill never leaves half a file."""
    if not hasattr(data, "to_netcdf"):
        raise ValueError(f"data must be an ArviZ object, got {type(data).__name__}: give what sample returned")
    path = file_path("path", path)
    with written_beside(path) as part:
        data.to_netcdf(str(part), engine=_ENGINE)
    return path


def read_netcdf(path: Any) -> Any:
    """Read what `write_netcdf` wrote, into memory. ValueError if the file is damaged or is none of ArviZ."""
    if not file_path("path", path).exists():
        raise FileNotFoundError(f"there is no file {path}")
    with reading(Path(path), "what write_netcdf wrote"):
        data = _arviz().from_netcdf(str(path), engine=_ENGINE)
        try:
            if not (data.children if _is_tree() else data.groups()):
                raise ValueError("it has no groups")
            return data.load()
        finally:
            data.close()


def rhat_and_ess(values: Array) -> tuple[Array, Array]:
    """Rank-normalised split R-hat and bulk effective sample size of arrays of shape (chain, draw, k).

    A single chain is cut in two. A quantity that never changes has R-hat 1 and all the draws there are; where draws are
    too few to tell, R-hat is inf and the effective sample size 0.
    """
    az, (chains, draws, k) = _arviz(), values.shape
    if chains * draws < 2:
        return np.full(k, np.inf), np.zeros(k)
    constant = np.ptp(values, axis=(0, 1)) == 0
    if chains == 1:
        values = values[:, : draws // 2 * 2].reshape(2, draws // 2, k)
    rhat, ess = np.full(k, np.nan), np.full(k, np.nan)
    if values.shape[1] >= 4:
        named = az.convert_to_dataset({"v": values})
        with _ignoring(), np.errstate(all="ignore"):
            rhat, ess = az.rhat(named)["v"].values, az.ess(named)["v"].values
    rhat, ess = np.where(np.isnan(rhat), np.inf, rhat), np.where(np.isnan(ess), 0.0, ess)
    return np.where(constant, 1.0, rhat), np.where(constant, float(chains * draws), ess)


def elpd(data: Any) -> Any:
    """Leave-one-out elpd of draws: Pareto-smoothed importance sampling over the exact conditional terms.

    Large Pareto k are told by `elpd_terms`, not by a warning.
    """
    with _ignoring(message="Estimated shape parameter of Pareto"):
        return _arviz().loo(data, pointwise=True)


def point_elpd(like: Any, terms: Array) -> Any:
    """The leave-one-out result of a point estimate, from its exact terms, for `az.compare` beside the result `like`."""
    result, total = copy.deepcopy(like), float(np.sum(terms))
    se, none = float(np.sqrt(len(terms) * np.var(terms))), np.zeros(len(terms))
    if _is_tree():
        return dataclasses.replace(
            result,
            elpd=total,
            se=se,
            p=0.0,
            warning=False,
            elpd_i=like.elpd_i.copy(data=terms),
            pareto_k=like.pareto_k.copy(data=none),
        )
    for name, value in (("elpd_loo", total), ("se", se), ("p_loo", 0.0), ("warning", False)):
        result[name] = value
    result["loo_i"], result["pareto_k"] = like["loo_i"].copy(data=terms), like["pareto_k"].copy(data=none)
    return result


def elpd_terms(result: Any) -> tuple[Array, Array]:
    """Pointwise elpd and Pareto k of a leave-one-out result."""
    if _is_tree():
        return result.elpd_i.values, result.pareto_k.values
    return result["loo_i"].values, result["pareto_k"].values


def compare_elpd(results: Mapping[str, Any]) -> Any:
    """`az.compare` of leave-one-out results, a table."""
    with _ignoring(DeprecationWarning):  # ArviZ 0.23 calls pandas 3.1 in an old way
        return _arviz().compare(dict(results))
