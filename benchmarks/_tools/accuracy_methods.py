"""Methods that `bench_accuracy_per_epsilon` compares: ours, short baselines, no privacy."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score
from sklearn.naive_bayes import GaussianNB

import jaxdp as dp
from jaxdp.guarantee.gaussian_dp import largest_gdp

BOUND = 3.0
COMPONENTS = 3

Scores = dict[str, float]


class Split(NamedTuple):
    """Records to fit and to score, epsilon and delta, and the baselines' randomness."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    epsilon: float
    delta: float
    rng: np.random.Generator

    @property
    def known(self) -> dict[str, Any]:
        bounds = (-BOUND, BOUND)
        return {"epsilon": self.epsilon, "delta": self.delta, "feature_bounds": bounds}

    @property
    def mu(self) -> float:
        return float(largest_gdp(dp.Budget(self.epsilon, self.delta)).mu)


def with_one(x: np.ndarray) -> np.ndarray:
    return np.column_stack([x, np.ones(len(x))])


def shortened(x: np.ndarray) -> tuple[np.ndarray, float]:
    """Rows (x, 1) no longer than the root of d, as they are on average, and this bound."""
    rows = with_one(x)
    bound = float(np.sqrt(rows.shape[1]))
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / bound, 1.0), bound


# Linear regression: R^2.


def linear_score(of: Split, theta: np.ndarray) -> Scores:
    return {"score": float(r2_score(of.y_test, with_one(of.x_test) @ theta))}


def our_linear(of: Split) -> Scores:
    model = dp.DPLinearRegression(**of.known, target_bounds=(-BOUND, BOUND)).fit(of.x, of.y)
    return {"score": float(model.score(of.x_test, of.y_test))}


def least_squares(of: Split) -> Scores:
    return {"score": float(LinearRegression().fit(of.x, of.y).score(of.x_test, of.y_test))}


def adassp(of: Split) -> Scores:
    """Wang, UAI 2018, algorithm 2, with rho = .05."""
    (rows, bound), part = shortened(of.x), of.epsilon / 3
    width, log_delta = rows.shape[1], np.log(6 / of.delta)
    noise = np.triu(of.rng.normal(size=(width, width)))
    noise += np.triu(noise, 1).T
    moment, scale = rows.T @ rows, np.sqrt(log_delta) * bound / part
    least = np.linalg.eigvalsh(moment)[0] + scale * bound * of.rng.normal()
    least = max(least - log_delta / part * bound**2, 0.0)
    wanted = np.sqrt(width * log_delta * np.log(2 * width**2 / 0.05)) * bound**2 / part
    ridge = max(0.0, wanted - least) * np.eye(width)
    vector = rows.T @ of.y + scale * BOUND * of.rng.normal(size=width)
    return linear_score(of, np.linalg.solve(moment + scale * bound * noise + ridge, vector))


def descent(of: Split, choice: tuple[int, float, float], slope: Callable[..., Any]) -> np.ndarray:
    """Full-batch descent with clipped gradients and Gaussian noise, accounted exactly (GDP)."""
    steps, threshold, step = choice
    rows = with_one(of.x)
    count, width = rows.shape
    clip = threshold * np.sqrt(width)
    lengths, theta = np.linalg.norm(rows, axis=1), np.zeros(width)
    deviation = 2.0 * clip * np.sqrt(steps) / (count * of.mu)
    for index in range(steps):
        slopes = slope(rows @ theta, of.y)
        slopes *= np.minimum(1.0, clip / np.maximum(np.abs(slopes) * lengths, 1e-300))
        gradient = rows.T @ slopes / count + deviation * of.rng.normal(size=width)
        theta -= step * (1.0 - index / steps) * gradient
    return theta


def linear_descent(of: Split, choice: tuple[int, float, float]) -> Scores:
    return linear_score(of, descent(of, choice, lambda score, y: score - y))


# Logistic regression: accuracy and log loss.


def classified(y: np.ndarray, probability: np.ndarray) -> Scores:
    probability = np.clip(np.nan_to_num(probability, nan=0.5), 1e-12, 1.0 - 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = float(log_loss(y, probability, labels=np.arange(probability.shape[1])))
    return {"score": float((probability.argmax(axis=1) == y).mean()), "log_loss": loss}


def logistic_score(of: Split, theta: np.ndarray) -> Scores:
    odds = with_one(of.x_test) @ theta
    return classified(of.y_test, np.exp(-np.logaddexp(0.0, np.stack([odds, -odds], axis=1))))


def our_logistic(of: Split) -> Scores:
    model = dp.DPLogisticRegression(**of.known).fit(of.x, of.y)
    return classified(of.y_test, model.predict_proba(of.x_test))


def plain_logistic(of: Split) -> Scores:
    model = LogisticRegression(max_iter=1000).fit(of.x, of.y)
    return classified(of.y_test, model.predict_proba(of.x_test))


def objective_perturbation(of: Split) -> Scores:
    """Kifer, Smith & Thakurta, COLT 2012, theorem 2: Gaussian noise; Newton's method."""
    rows, bound = shortened(of.x)
    count, width = rows.shape
    signed = rows * np.where(of.y > 0, 1.0, -1.0)[:, None]
    variance = bound**2 * (8 * np.log(2 / of.delta) + 4 * of.epsilon) / of.epsilon**2
    noise = np.sqrt(variance) * of.rng.normal(size=width)
    ridge, theta = 2.0 * bound**2 / 4.0 / of.epsilon, np.zeros(width)

    def value(at: np.ndarray) -> float:
        return np.logaddexp(0.0, -signed @ at).sum() + ridge / 2 * at @ at + noise @ at

    for _ in range(50):
        share = 1.0 / (1.0 + np.exp(np.clip(signed @ theta, -500, 500)))
        gradient = -signed.T @ share + ridge * theta + noise
        hessian = (signed * (share * (1 - share))[:, None]).T @ signed + ridge * np.eye(width)
        move, size = np.linalg.solve(hessian, gradient), 1.0
        while value(theta - size * move) > value(theta) and size > 1e-6:
            size /= 2
        theta = theta - size * move
        if np.abs(gradient).max() < 1e-8 * count:
            break
    return logistic_score(of, theta)


def logistic_descent(of: Split, choice: tuple[int, float, float]) -> Scores:
    def slope(score: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(-np.clip(score, -500, 500))) - y

    return logistic_score(of, descent(of, choice, slope))


# PCA: share of the variance of scored records that the first components have.


def captured(of: Split, basis: Any) -> Scores:
    centred = of.x_test - of.x_test.mean(axis=0)
    return {"score": float(((centred @ basis.T) ** 2).sum() / (centred**2).sum())}


def our_pca(of: Split) -> Scores:
    bound = float(np.sqrt(of.x.shape[1]))
    return captured(of, dp.DPPCA(COMPONENTS, row_bound=bound, **of.known).fit(of.x).components_)


def plain_pca(of: Split) -> Scores:
    return captured(of, PCA(COMPONENTS).fit(of.x).components_)


def analyze_gauss(of: Split) -> Scores:
    """Dwork et al., STOC 2014: equal noise on the upper triangle, by the classical bound."""
    width = of.x.shape[1]
    bound = np.sqrt(width)
    rows = of.x / np.maximum(np.linalg.norm(of.x, axis=1, keepdims=True) / bound, 1.0)
    scale = np.sqrt(2) * bound**2 * np.sqrt(2 * np.log(1.25 / of.delta)) / of.epsilon
    noise = np.triu(scale * of.rng.normal(size=(width, width)))
    moment = rows.T @ rows + noise + np.triu(noise, 1).T
    return captured(of, np.linalg.eigh(moment)[1][:, ::-1][:, :COMPONENTS].T)


# Naive Bayes: accuracy and log loss.


def our_bayes(of: Split) -> Scores:
    model = dp.DPNaiveBayes(**of.known).fit(of.x, of.y)
    return classified(of.y_test, model.predict_proba(of.x_test))


def plain_bayes(of: Split) -> Scores:
    return classified(of.y_test, GaussianNB().fit(of.x, of.y).predict_proba(of.x_test))


def laplace_bayes(of: Split) -> Scores:
    """Pure epsilon: Laplace noise on counts, sums and sums of squares, a third of it for each."""
    classes, width = int(of.y.max()) + 1, of.x.shape[1]
    part, joint = of.epsilon / 3, []
    shift = {"sum": 2 * BOUND * width, "square": 2 * BOUND**2 * width}
    for label in range(classes):
        rows = of.x[of.y == label]
        count = max(len(rows) + of.rng.laplace(scale=2 / part), 1.0)
        mean = (rows.sum(axis=0) + of.rng.laplace(scale=shift["sum"] / part, size=width)) / count
        mean = np.clip(mean, -BOUND, BOUND)
        square = (rows**2).sum(axis=0) + of.rng.laplace(scale=shift["square"] / part, size=width)
        variance = np.clip(square / count - mean**2, 1e-3, BOUND**2)
        terms = (of.x_test - mean) ** 2 / variance + np.log(variance)
        joint.append(np.log(count) - 0.5 * terms.sum(axis=1))
    odds = np.stack(joint, axis=1)
    shares = np.exp(odds - odds.max(axis=1, keepdims=True))
    return classified(of.y_test, shares / shares.sum(axis=1, keepdims=True))
