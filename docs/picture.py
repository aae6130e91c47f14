"""Draws docs/_static/picture.png: `python docs/picture.py`."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import jaxdp as dp
from jaxdp.plot.style import SETTINGS

figure = Figure(figsize=(10, 3.8), layout="constrained")
with matplotlib.rc_context(SETTINGS):
    left, right = figure.subplots(1, 2)
steps = {
    f"noise multiplier {s:g}": dp.Mechanism(dp.Gaussian(s), 1.0, 0.01, relation="add_remove")
    for s in (0.8, 1.0, 1.5)
}
left.set_title("DP-SGD, a hundredth of the records a step")
dp.plot.epsilon_by_step(steps, 3000, 1e-6, ax=left)
families = ["gaussian", "truncated_laplace", "staircase"]
right.set_title("One release: least noise for a budget")
dp.plot.noise_by_epsilon(
    families, np.geomspace(0.1, 10.0, 41), 1e-6, relative_to="gaussian", ax=right
)
figure.savefig(Path(__file__).parent / "_static" / "picture.png", dpi=110)
