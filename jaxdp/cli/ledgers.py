"""`jaxdp ledger`: the spent part of a budget in a file."""

import dataclasses
import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxdp.cli.base import (
    AsJson,
    check,
    exit_on_error,
    in_columns,
    library,
    show,
    with_options,
    wrapped,
)

# Names of the numbers of a guarantee, by its kind.
_NAMES = {"ZCDP": ("xi", "rho"), "GDP": ("mu",), "PureDP": ("epsilon",)}
# Printed digits of a number. chosen: more are no help to a reader
_PRECISION = 4
# Digits of a SHA-256 that are printed. chosen: enough to compare by eye, --json has all
_DIGITS = 12


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("ledger")(with_options(run))


@dataclasses.dataclass(frozen=True)
class NewBudget:
    """The budget of a ledger that is made, in one of three ways."""

    rho: Annotated[
        float | None, typer.Option(help="Budget in zero-concentrated privacy, with --create.")
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(help="Budget with --delta and --create: kept as a mu, or --zcdp."),
    ] = None
    gdp: Annotated[float | None, typer.Option(help="Budget as mu of GDP, with --create.")] = None
    delta: Annotated[
        float, typer.Option(help="delta of the budget, and of the epsilon that is shown.")
    ] = 1e-6
    zcdp: Annotated[
        bool, typer.Option("--zcdp", help="Keep --epsilon and --delta as the largest rho.")
    ] = False


def run(
    budget: NewBudget,
    file: Annotated[Path, typer.Argument(help="File of a dp.Ledger.")],
    create: Annotated[bool, typer.Option("--create", help="Make the file, with a budget.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a ledger, or verify one and show its budget, the spent part and the charges."""

    def work() -> tuple[dict[str, Any], str]:
        check({"epsilon": budget.epsilon, "delta": budget.delta})
        ledger = _created(file, budget) if create else _opened(file, budget)
        parts = {
            "budget": ledger.budget,
            "spent": ledger.spent(),
            "remaining": ledger.remaining(),
        }
        answer = _report(ledger, parts, budget.delta)
        return answer, (_meaning(ledger, budget) if budget.zcdp else "") + _text_of(answer, parts)

    answer, text = exit_on_error("ledger", work)
    show(as_json, answer, text)


def _created(file: Path, budget: NewBudget) -> Any:
    given = {k: getattr(budget, k) for k in ("rho", "epsilon", "gdp")}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        raise ValueError("give one budget: --rho, --gdp, or --epsilon with --delta")
    if file.exists():
        raise ValueError(f"--create makes a new ledger, and there is a file {file}")
    ((kind, size),) = given.items()
    if not 0 < size < float("inf"):
        raise ValueError(f"--{kind} must be above 0 and finite, got {size:g}")
    if budget.zcdp and (kind != "epsilon" or not 0 < budget.delta < 1):
        raise ValueError(
            f"--zcdp must be beside --epsilon and a --delta in (0, 1), got --{kind} {size:g} and "
            f"--delta {budget.delta:g}"
        )
    dp = library()
    if budget.zcdp:
        return dp.Ledger(file, dp.largest_zcdp((size, budget.delta)))
    made = {
        "rho": lambda: dp.ZCDP(0.0, size),
        "gdp": lambda: dp.GDP(size),
        "epsilon": lambda: dp.Budget(size, budget.delta),
    }
    return dp.Ledger(file, made[kind]())


def _opened(file: Path, budget: NewBudget) -> Any:
    for name in ("rho", "epsilon", "gdp", "zcdp"):
        if getattr(budget, name) not in (None, False):
            raise ValueError(f"--{name} is for --create: a ledger keeps its budget")
    return library().Ledger(file)


def _report(ledger: Any, parts: dict[str, Any], delta: float) -> dict[str, Any]:
    """The ledger for programs: guarantees as kind and numbers, and as (epsilon, delta)."""
    import numpy as np

    answer: dict[str, Any] = {"delta": delta}
    for name, guarantee in parts.items():
        fields = {
            f.name: np.asarray(getattr(guarantee, f.name)).tolist()
            for f in dataclasses.fields(guarantee)
        }
        fields["epsilon"] = _epsilon(guarantee, delta)
        answer[name] = {"kind": type(guarantee).__name__, **fields}
    charges = [dataclasses.asdict(charge) for charge in ledger.charges]
    return {**answer, "charges": charges, "digest": ledger.digest}


def _epsilon(guarantee: Any, delta: float) -> float:
    """The epsilon at delta, without the last digits that its search adds to a short number."""
    epsilon = float(guarantee.epsilon(delta))
    shorter = float(f"{epsilon:.{_PRECISION}g}")
    # The log is rounded, too.
    is_met = 0 < delta < 1 and shorter < epsilon < math.inf
    if is_met and float(guarantee.log_delta(shorter)) <= math.nextafter(math.log(delta), -math.inf):
        return shorter
    return epsilon


def _meaning(ledger: Any, budget: NewBudget) -> str:
    """The rho of an (epsilon, delta) in a sentence."""
    return (
        wrapped(
            f"({budget.epsilon:g}, {budget.delta:g})-differential privacy allows a sum of "
            f"{float(ledger.budget.rho)!r} of the rhos of zero-concentrated privacy. The ledger adds "
            "up the rhos of all releases, and refuses a release that exceeds this sum."
        )
        + "\n"
    )


def _text_of(answer: dict[str, Any], parts: dict[str, Any]) -> str:
    """The ledger in words, and a table of its charges."""
    delta, kind, lines = answer["delta"], answer["budget"]["kind"], []
    for name, words in (("budget", "budget"), ("spent", "spent so far"), ("remaining", "left")):
        epsilon = _rounded(answer[name]["epsilon"], up=True)
        shown = in_words(parts[name], up=name != "remaining")
        lines.append(f"{words}: {shown}; it implies ({epsilon}, {delta:g})-differential privacy")
    rows = [["time (UTC)", "name", "cost", "plan", "output"]]
    for charge in answer["charges"]:
        times = "" if charge["count"] == 1 else f"{charge['count']} x "
        plan, outputs = charge["plan_sha256"] or "", charge["outputs"]
        time = (charge["time"] or "").removesuffix("+00:00").replace("T", " ")
        shown = [plan[:_DIGITS], ", ".join(output[:_DIGITS] for output in outputs)]
        rows.append([time, charge["name"], times + _words(kind, charge["cost"]), *shown])
    table = in_columns(rows) if len(rows) > 1 else ["no charge"]
    return "\n".join([wrapped("\n".join(lines)), *table, f"digest: {answer['digest']}"])


def in_words(guarantee: Any, *, up: bool) -> str:
    """A guarantee of a ledger's kind as "rho 0.02", rounded up or down."""
    from jaxdp.adaptive.currency import numbers

    return _words(type(guarantee).__name__, numbers(guarantee), up)


def _words(kind: str, sizes: Sequence[float], up: bool = True) -> str:
    names = _NAMES.get(kind, ("",) * len(sizes))
    texts = (f"{n} {_rounded(x, up)}".strip() for n, x in zip(names, sizes, strict=True) if x != 0)
    return ", ".join(texts) or "nothing"


def _rounded(value: float, up: bool) -> str:
    nearest = f"{value:.{_PRECISION}g}"
    if float(nearest) >= value if up else float(nearest) <= value:
        return nearest
    context = Context(prec=_PRECISION, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{float(context.create_decimal(value)):.{_PRECISION}g}"
