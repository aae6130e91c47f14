"""`jaxdp ledger`: the spent part of a budget in a file."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxdp.cli.base import (
    AsJson,
    check,
    exit_on_error,
    in_columns,
    library,
    rounded,
    show,
    with_options,
    wrapped,
)

# Kinds that state an epsilon and a delta.
_PAIRS = ("Budget", "ApproxDP")
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
        typer.Option(help="Budget with --delta and --create."),
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
        parts = _parts(ledger, budget.delta)
        text = _text_of(ledger, parts, budget.delta)
        if budget.zcdp:
            pair = f"({budget.epsilon:g}, {budget.delta:g})-differential privacy"
            total = f"rho = {float(ledger.budget.rho)!r} of zero-concentrated privacy in total"
            text = f"{pair} allows {total}\n{text}"
        return _report(ledger, parts, budget.delta), text

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
        raise ValueError("--zcdp must be beside --epsilon, and --delta above 0 and below 1")
    dp, pair = library(), (size, budget.delta)
    made = {
        "rho": lambda: dp.ZCDP(0.0, size),
        "gdp": lambda: dp.GDP(size),
        "epsilon": lambda: dp.largest_zcdp(pair) if budget.zcdp else dp.Budget(*pair),
    }
    return dp.Ledger(file, made[kind]())


def _opened(file: Path, budget: NewBudget) -> Any:
    for name in ("rho", "epsilon", "gdp", "zcdp"):
        if getattr(budget, name) not in (None, False):
            raise ValueError(f"--{name} is for --create: a ledger keeps its budget")
    return library().Ledger(file)


def _parts(ledger: Any, delta: float) -> dict[str, tuple[Any, float]]:
    """The budget, the spent and the remaining part, and the epsilon of each at delta."""
    parts = {"budget": ledger.budget, "spent": ledger.spent(), "remaining": ledger.remaining()}
    return {name: (part, _epsilon_of(part, delta)) for name, part in parts.items()}


def _epsilon_of(part: Any, delta: float) -> float:
    """The epsilon that a pair states, or that a guarantee has at delta."""
    from jaxdp.adaptive.costs import numbers

    if type(part).__name__ in _PAIRS:
        return numbers(part)[0]
    epsilon = float(part.epsilon(delta))
    if 0 < delta < 1:
        # Fewer digits, if they satisfy delta, whose log is rounded, too.
        shorter = float(f"{epsilon:.{_PRECISION}g}")
        if part.log_delta(shorter) <= math.nextafter(math.log(delta), -math.inf):
            return min(epsilon, shorter)
    return epsilon


def _report(ledger: Any, parts: dict[str, tuple[Any, float]], delta: float) -> dict[str, Any]:
    """The ledger for programs: guarantees as kind and numbers, and as (epsilon, delta)."""
    answer: dict[str, Any] = {"delta": delta}
    for name, (guarantee, epsilon) in parts.items():
        fields = {k: x.tolist() for k, x in vars(guarantee).items()}
        answer[name] = {"kind": type(guarantee).__name__, **fields, "epsilon": epsilon}
    charges = [dataclasses.asdict(charge) for charge in ledger.charges]
    return {**answer, "charges": charges, "digest": ledger.digest}


def _text_of(ledger: Any, parts: dict[str, tuple[Any, float]], delta: float) -> str:
    """The ledger in words, and a table of its charges."""
    kind, lines = ledger.budget, []
    titles = {"budget": "budget", "spent": "spent so far", "remaining": "left"}
    for name, (guarantee, epsilon) in parts.items():
        line = f"{titles[name]}: {in_words(guarantee, up=name != 'remaining')}"
        if type(guarantee).__name__ not in _PAIRS:
            rest = f"({rounded(epsilon, _PRECISION)}, {delta:g})-differential privacy"
            line += f"; it implies {rest}"
        lines.append(line)
    rows = [["time (UTC)", "name", "cost", "plan", "output"]]
    for charge in ledger.charges:
        times = "" if charge.count == 1 else f"{charge.count} x "
        time = (charge.time or "").removesuffix("+00:00").replace("T", " ")
        outputs = ", ".join(output[:_DIGITS] for output in charge.outputs)
        cost = times + words(kind, charge.cost)
        rows.append([time, charge.name, cost, (charge.plan_sha256 or "")[:_DIGITS], outputs])
    table = in_columns(rows) if len(rows) > 1 else ["no charge"]
    return "\n".join([wrapped("\n".join(lines)), *table, f"digest: {ledger.digest}"])


def in_words(guarantee: Any, *, up: bool) -> str:
    """A guarantee of a ledger's kind as "rho 0.02", rounded up or down."""
    from jaxdp.adaptive.costs import numbers

    return words(guarantee, numbers(guarantee), up)


def words(kind: Any, sizes: Sequence[Any], up: bool = True) -> str:
    """Numbers of a guarantee, or of a cost under a budget, rounded up or down."""
    from jaxdp.adaptive import costs

    return costs.in_words(kind, sizes, lambda x: rounded(x, _PRECISION, up=up))
