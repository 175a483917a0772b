"""Where pictures are drawn: new axes, a legend that hides nothing, and the colours.

The colours are those of Okabe and Ito, which people with any colour vision can tell apart. Matplotlib is imported when
something is drawn, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray

BLUE, ORANGE = "#0072B2", "#D55E00"
SERIES = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DATA, TRUTH = "0.65", "black"


def new_axes(n: int = 1, size: tuple[float, float] = (8.0, 3.6)) -> Array:
    """Panels of a new figure, one below the other; `size` in inches is that of a figure with one."""
    import matplotlib.pyplot as plt

    size = size if n == 1 else (size[0], 0.7 * n * size[1])
    return plt.subplots(n, 1, figsize=size, sharex=True, squeeze=False, layout="constrained")[1][:, 0]


def add_legend(ax: Axes) -> None:
    """A legend right of the axes; inside them if the figure has no layout that makes room for it."""
    if ax.figure.get_layout_engine() is None or ax.get_subplotspec() is None:
        ax.legend(fontsize="small", loc="best")
    else:
        ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
