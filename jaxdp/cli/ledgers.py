"""`jaxdp ledger`: the spent part of a budget in a file."""

import dataclasses
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
        float | None, typer.Option(help="Budget with --delta and --create: kept as a GDP.")
    ] = None
    gdp: Annotated[float | None, typer.Option(help="Budget as mu of GDP, with --create.")] = None
    delta: Annotated[
        float, typer.Option(help="delta of the budget, and of the epsilon that is shown.")
    ] = 1e-6


def run(
    budget: NewBudget,
    file: Annotated[Path, typer.Argument(help="File of a dp.Ledger.")],
    create: Annotated[bool, typer.Option("--create", help="Make the file, with a budget.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a ledger, or verify one and show its budget, the spent part and the charges."""

    def work() -> dict[str, Any]:
        check({"epsilon": budget.epsilon, "delta": budget.delta})
        return _report(_created(file, budget) if create else _opened(file, budget), budget.delta)

    answer = exit_on_error("ledger", work)
    show(as_json, answer, _text_of(answer))


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
    dp = library()
    made = {
        "rho": lambda: dp.ZCDP(0.0, size),
        "gdp": lambda: dp.GDP(size),
        "epsilon": lambda: dp.Budget(size, budget.delta),
    }
    return dp.Ledger(file, made[kind]())


def _opened(file: Path, budget: NewBudget) -> Any:
    for name in ("rho", "epsilon", "gdp"):
        if getattr(budget, name) is not None:
            raise ValueError(f"--{name} is for --create: a ledger keeps its budget")
    return library().Ledger(file)


def _report(ledger: Any, delta: float) -> dict[str, Any]:
    """The ledger for programs: guarantees as kind and numbers, and as (epsilon, delta)."""
    import numpy as np

    answer: dict[str, Any] = {"delta": delta}
    parts = {"budget": ledger.budget, "spent": ledger.spent(), "remaining": ledger.remaining()}
    for name, guarantee in parts.items():
        fields = {
            f.name: np.asarray(getattr(guarantee, f.name)).tolist()
            for f in dataclasses.fields(guarantee)
        }
        epsilon = float(guarantee.epsilon(delta))
        answer[name] = {"kind": type(guarantee).__name__, **fields, "epsilon": epsilon}
    charges = [dataclasses.asdict(charge) for charge in ledger.charges]
    return {**answer, "charges": charges, "digest": ledger.digest}


def _text_of(answer: dict[str, Any]) -> str:
    """The ledger in words, and a table of its charges."""
    from jaxdp.dpsgd.statement import rounded_up

    delta, kind, lines = answer["delta"], answer["budget"]["kind"], []
    for name, words in (("budget", "budget"), ("spent", "spent so far"), ("remaining", "left")):
        part = answer[name]
        numbers = {k: x for k, x in part.items() if k not in ("kind", "epsilon") and x != 0}
        shown = ", ".join(f"{_symbol(k)} {_short(x)}" for k, x in numbers.items()) or "nothing"
        epsilon = rounded_up(part["epsilon"], 4)
        lines.append(f"{words}: {shown}; it implies ({epsilon}, {delta:g})-differential privacy")
    rows = [["time (UTC)", "name", "cost", "plan", "output"]]
    for charge in answer["charges"]:
        cost = _cost(kind, charge["cost"])
        times = "" if charge["count"] == 1 else f"{charge['count']} x "
        plan, outputs = charge["plan_sha256"] or "", charge["outputs"]
        time = (charge["time"] or "").removesuffix("+00:00").replace("T", " ")
        shown = [plan[:_DIGITS], ", ".join(output[:_DIGITS] for output in outputs)]
        rows.append([time, charge["name"], times + cost, *shown])
    table = in_columns(rows) if len(rows) > 1 else ["no charge"]
    return "\n".join([wrapped("\n".join(lines)), *table, f"digest: {answer['digest']}"])


def _cost(kind: str, cost: tuple[float, ...]) -> str:
    """The cost of one release in the budget's kind."""
    if kind == "ZCDP":
        return f"rho {cost[1]:.4g}" + (f", xi {cost[0]:.4g}" if cost[0] else "")
    return {"GDP": "mu ", "PureDP": "epsilon "}.get(kind, "") + _short(list(cost))


def _symbol(name: str) -> str:
    return {"epsilon_bound": "epsilon"}.get(name, name)


def _short(value: Any) -> str:
    return ", ".join(f"{x:.4g}" for x in (value if isinstance(value, list) else [value]))
