"""`jaxdp train`: a private linear model of a CSV file."""

import dataclasses
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from jaxdp._core.files import write_atomically
from jaxdp._core.neighbours import SolverRelation
from jaxdp.cli.base import (
    AsJson,
    Delta,
    Epsilon,
    as_text,
    check,
    check_output,
    exit_on_error,
    library,
    with_options,
    wrapped,
)
from jaxdp.cli.records import Dialect, Records, require_names
from jaxdp.tables.labels import ColumnError, normal, number_in

Model = Literal["lasso", "logistic"]


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("train")(with_options(run))


@dataclasses.dataclass(frozen=True)
class Fit:
    """Data, model and budget of a fit."""

    file: Annotated[Path, typer.Argument(help="CSV with a header; numbers, except for the labels.")]
    target: Annotated[str, typer.Option(help="The column to predict.")]
    model: Annotated[Model, typer.Option(help="Linear regression, or two classes.")]
    epsilon: Epsilon
    delta: Delta
    feature_bounds: Annotated[
        str, typer.Option(help="Public bounds: lower:upper, or one per feature, 0:1,-3:3.")
    ]
    target_bounds: Annotated[
        str | None, typer.Option(help="Public bounds of a lasso's target, lower:upper.")
    ] = None
    classes: Annotated[
        str | None, typer.Option(help="Public labels of a logistic target: no,yes.")
    ] = None
    alpha: Annotated[float, typer.Option(help="Strength of the penalty.")] = 0.01
    relation: Annotated[SolverRelation, typer.Option(help="Neighbouring relation.")] = "replace_one"


def run(
    dialect: Dialect,
    fit: Fit,
    out: Annotated[Path, typer.Option(help="The model, as JSON.")] = Path("model.json"),
    as_json: AsJson = False,
) -> None:
    """Train a private LASSO or logistic regression; show its guarantee."""
    options = {name: getattr(fit, name) for name in ("epsilon", "delta", "alpha", "relation")}

    def work() -> dict[str, Any]:
        check(options)
        check_output("out", out, fit.file)
        records = Records(fit.file, **vars(dialect))
        with records.located():
            return _trained(fit, records, options)

    report = exit_on_error("train", work, reads_records=True)
    try:
        exit_on_error("train", lambda: write_atomically(out, as_text(report) + "\n"))
    finally:
        typer.echo(as_text(report) if as_json else _text_of(report, out))


def _trained(fit: Fit, records: Records, options: dict[str, Any]) -> dict[str, Any]:
    """The report of the model that is fitted to the records."""
    names, features, cells = _read(fit, records)
    bounds = _bounds("feature-bounds", fit.feature_bounds)
    if len(bounds[0]) not in (1, len(names)):
        raise ValueError(f"--feature-bounds must be one pair or {len(names)}, one per feature")
    settings = {**options, "feature_bounds": bounds}
    if fit.model == "lasso":
        ends = None if fit.target_bounds is None else _bounds("target-bounds", fit.target_bounds)
        fitted = _lasso(settings, ends, features, cells)
    else:
        fitted = _logistic(settings, fit.classes, features, cells)
    return _report(fitted, fit.model, names, settings)


def _lasso(settings: dict[str, Any], ends: Any, features: np.ndarray, cells: list[str]) -> Any:
    if ends is None:
        raise ValueError(
            "give --target-bounds lower:upper: public bounds, to which targets are clipped"
        )
    targets = np.array([_number(cell, row, "the target") for row, cell in enumerate(cells)])
    bounds = (ends[0].item(), ends[1].item())
    estimator = library().DPLasso(**settings, target_bounds=bounds)
    return _fitted(estimator, features, targets)


def _logistic(
    settings: dict[str, Any], classes: str | None, features: np.ndarray, cells: list[str]
) -> Any:
    labels = [] if classes is None else [normal(label) for label in classes.split(",")]
    cells = [normal(cell) for cell in cells]
    if len(set(labels)) != 2:
        raise ValueError("give --classes with two labels, as in no,yes: they are public")
    if not set(cells) <= set(labels):
        raise ValueError("the target has a label that --classes does not name")
    targets = np.array([labels.index(label) for label in cells])
    estimator = library().DPLogisticRegression(**settings, classes=[0, 1])
    fitted = _fitted(estimator, features, targets)
    fitted.labels = labels
    return fitted


def _fitted(estimator: Any, features: np.ndarray, targets: np.ndarray) -> Any:
    """The estimator, fitted; its warnings as lines on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        estimator.fit(features, targets)
    for warning in caught:
        typer.echo(f"jaxdp train: {warning.message}", err=True)
    return estimator


def _report(fitted: Any, model: str, names: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    """Released and public numbers only: model, guarantee, and how it was made."""
    lower, upper = settings["feature_bounds"]
    report = {
        "model": model,
        "features": names,
        "coefficients": np.ravel(fitted.coef_).tolist(),
        "intercept": float(np.ravel(fitted.intercept_)[0]),
        "feature_bounds": [lower.tolist(), upper.tolist()],
        "feature_range": fitted.feature_range_.tolist(),
        "guarantee": fitted.privacy_text_,
        "epsilon": settings["epsilon"],
        "delta": settings["delta"],
        "relation": settings["relation"],
        "alpha": settings["alpha"],
        "passes": int(fitted.n_iter_),
    }
    if model == "logistic":
        report["classes"] = fitted.labels
    return report


def _text_of(report: dict[str, Any], out: Path) -> str:
    width = max(map(len, ("intercept", *report["features"])))
    pairs = zip(report["features"], report["coefficients"], strict=True)
    protected = {
        "replace_one": "one record replaced by another; how many there are is public",
        "add_remove": "one record added or removed; how many there are is taken as public",
    }[report["relation"]]
    lines = [
        *(f"{name:<{width}}  {value: .6g}" for name, value in pairs),
        f"{'intercept':<{width}}  {report['intercept']: .6g}",
        f"guarantee: {report['guarantee']}",
        f"neighbours: {protected}",
        "conditions: bounds, labels and column names are public; the model is all that is shown",
        f"written to {out}",
    ]
    return wrapped("\n".join(lines))


def _read(fit: Fit, records: Records) -> tuple[list[str], np.ndarray, list[str]]:
    """Names and values of the features, and the target's cells; no message shows a cell."""
    target = normal(fit.target)
    columns = records.columns()
    records.require(target, "--target")
    cells = columns.pop(target)
    if not cells:
        raise ValueError(f"{fit.file} must hold a header and records")
    names = [*columns]
    require_names(fit.file, names)
    numbers = [
        [_number(cell, i, f"feature {k + 1}") for i, cell in enumerate(column)]
        for k, column in enumerate(columns.values())
    ]
    return names, np.array(numbers).T, cells


def _number(cell: str, row: int, name: str) -> float:
    number = number_in(cell)
    if np.isnan(number):
        raise ColumnError(f"{name} must be a number, and is not one in record {row + 1}", row + 1)
    return number


def _bounds(name: str, text: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        pairs = np.array([[float(x) for x in pair.split(":")] for pair in text.split(",")])
        lower, upper = pairs.T
    except ValueError as error:
        raise ValueError(
            f"--{name} must be lower:upper, or such pairs by comma, got {text!r}"
        ) from error
    return lower, upper
