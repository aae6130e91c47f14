"""Draws two pictures of docs/_static, picture.png and epsilon.png: `python docs/picture.py`."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import jaxdp as dp

figure = Figure(figsize=(10, 3.8), layout="constrained")
left, right = figure.subplots(1, 2)
steps = {
    f"noise multiplier {s:g}": dp.Mechanism(dp.Gaussian(s), 1.0, 0.01, relation="add_remove")
    for s in (0.8, 1.0, 1.5)
}
left.set_title("DP-SGD, a hundredth of the records a step")
dp.plot.epsilon_by_step(steps, 3000, 1e-6, ax=left)
epsilons = np.geomspace(0.1, 10.0, 41)
families = ["gaussian", "truncated_laplace", "staircase"]
fitted = {family: dp.fit_noise(family, (epsilons, 1e-6), 1.0).variance() for family in families}
for family, variance in fitted.items():
    ratio = np.sqrt(variance / fitted["gaussian"])
    right.loglog(epsilons, ratio, label=family.replace("_", " "))
right.set(xlabel="ε at δ = 1e-6", ylabel="standard deviation relative to the Gaussian")
right.legend(title="noise")
figure.savefig(Path(__file__).parent / "_static" / "picture.png", dpi=110)


# What an attacker can do: under any guarantee, and against Gaussian noise of the same epsilon.
figure = Figure(figsize=(10, 3.8), layout="constrained")
left, right = figure.subplots(1, 2)
epsilons = np.linspace(0.01, 8.0, 81)
noises = [dp.fit_noise("gaussian", dp.Budget(x, 1e-5), 1.0) for x in epsilons]
answers = {
    "any mechanism with this ε": dp.ApproxDP(epsilons, 1e-5),
    "Gaussian noise with this ε": dp.Mechanism(dp.Gaussian([x.scale for x in noises]), 1.0),
}
for label, guarantee in answers.items():
    left.plot(epsilons, 50.0 + 50.0 * np.asarray(dp.risk.advantage(guarantee)), label=label)
left.set(xlabel="ε at δ = 1e-5", ylabel="right answers, at most (%)", ylim=(50.0, 100.0))
left.set_title("Was this record used? Guessing is right in 50 %")
left.legend()
rates = np.geomspace(1e-4, 1.0, 81)
for epsilon in (8.0, 4.0, 2.0, 1.0):
    scale = dp.fit_noise("gaussian", dp.Budget(epsilon, 1e-5), 1.0).scale
    found = np.asarray(dp.risk.tpr_at_fpr(dp.Mechanism(dp.Gaussian(scale), 1.0), rates))
    right.loglog(rates, found, label=f"Gaussian noise, ε = {epsilon:g}")
right.loglog(rates, rates, "--", color="gray", label="guessing")
right.set(xlabel="share accused wrongly", ylabel="share of members found, at most")
right.set_title("What accusing few people wrongly finds")
right.legend()
figure.savefig(Path(__file__).parent / "_static" / "epsilon.png", dpi=110)
