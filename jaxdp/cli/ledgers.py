"""`jaxdp ledger`: the spent part of a budget in a file."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxdp.cli.base import Answer, add_command, in_columns, library, rounded, wrapped

# Kinds that state an epsilon and a delta.
_PAIRS = ("Budget", "ApproxDP")
# Printed digits of a number. chosen: more are no help to a reader
_PRECISION = 4
# Digits of a SHA-256 that are printed. chosen: enough to compare by eye, --json has all
_DIGITS = 12


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    add_command(app, ledger)


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


def ledger(
    budget: NewBudget,
    file: Annotated[Path, typer.Argument(help="File of a dp.Ledger.")],
    create: Annotated[bool, typer.Option("--create", help="Make the file, with a budget.")] = False,
) -> Answer:
    """Make a ledger, or verify one and show its budget, the spent part and the charges."""
    kept, delta = _created(file, budget) if create else _opened(file, budget), budget.delta
    named = {"budget": kept.budget, "spent": kept.spent(), "remaining": kept.remaining()}
    parts = {name: (part, _epsilon_of(part, delta)) for name, part in named.items()}
    text = _text_of(kept, parts, delta)
    if budget.zcdp:
        pair = f"({budget.epsilon:g}, {delta:g})-differential privacy"
        total = f"rho = {float(kept.budget.rho)!r} of zero-concentrated privacy in total"
        text = f"{pair} allows {total}\n{text}"
    answer: dict[str, Any] = {"delta": delta}
    for name, (guarantee, epsilon) in parts.items():
        fields = {k: x.tolist() for k, x in vars(guarantee).items()}
        answer[name] = {"kind": type(guarantee).__name__, **fields, "epsilon": epsilon}
    charges = [dataclasses.asdict(charge) for charge in kept.charges]
    return {**answer, "charges": charges, "digest": kept.digest}, text


def _created(file: Path, budget: NewBudget) -> Any:
    kinds = [name for name in ("rho", "epsilon", "gdp") if getattr(budget, name) is not None]
    if len(kinds) != 1:
        raise ValueError("give one budget: --rho, --gdp, or --epsilon with --delta")
    if file.exists():
        raise ValueError(f"--create makes a new ledger, and there is a file {file}")
    (kind,) = kinds
    size = getattr(budget, kind)
    if not 0 < size < math.inf:
        raise ValueError(f"--{kind} must be above 0 and finite, got {size:g}")
    if budget.zcdp and (kind != "epsilon" or not 0 < budget.delta < 1):
        raise ValueError("--zcdp must be beside --epsilon, and --delta above 0 and below 1")
    dp = library()
    if kind == "epsilon":
        pair = dp.Budget(size, budget.delta)
        return dp.Ledger(file, dp.largest_zcdp(pair) if budget.zcdp else pair)
    return dp.Ledger(file, dp.GDP(size) if kind == "gdp" else dp.ZCDP(0.0, size))


def _opened(file: Path, budget: NewBudget) -> Any:
    for name in ("rho", "epsilon", "gdp", "zcdp"):
        if getattr(budget, name) not in (None, False):
            raise ValueError(f"--{name} is for --create: a ledger keeps its budget")
    return library().Ledger(file)


def _epsilon_of(guarantee: Any, delta: float) -> float:
    """Epsilon of a pair (epsilon, delta), or of any other guarantee at delta."""
    if type(guarantee).__name__ in _PAIRS:
        return float(next(iter(vars(guarantee).values())))
    epsilon = float(guarantee.epsilon(delta))
    if not 0 < delta < 1:
        return epsilon
    # Fewer digits, if they satisfy delta, whose log is rounded, too.
    shorter = float(f"{epsilon:.{_PRECISION}g}")
    is_met = guarantee.log_delta(shorter) <= math.nextafter(math.log(delta), -math.inf)
    return min(epsilon, shorter) if is_met else epsilon


def _text_of(kept: Any, parts: dict[str, tuple[Any, float]], delta: float) -> str:
    """The ledger in words, and a table of its charges."""
    lines: list[str] = []
    titles = {"budget": "budget", "spent": "spent so far", "remaining": "left"}
    for name, (guarantee, epsilon) in parts.items():
        line = f"{titles[name]}: {in_words(guarantee, up=name != 'remaining')}"
        if type(guarantee).__name__ not in _PAIRS:
            rest = f"({rounded(epsilon, _PRECISION)}, {delta:g})-differential privacy"
            line += f"; it implies {rest}"
        lines.append(line)
    rows = [["time (UTC)", "name", "cost", "plan", "output"]]
    for charge in kept.charges:
        times = "" if charge.count == 1 else f"{charge.count} x "
        time = charge.time.removesuffix("+00:00").replace("T", " ")
        outputs = ", ".join(output[:_DIGITS] for output in charge.outputs)
        cost = times + words(kept.budget, charge.cost)
        rows.append([time, charge.name, cost, (charge.plan_sha256 or "")[:_DIGITS], outputs])
    table = in_columns(rows) if len(rows) > 1 else ["no charge"]
    return "\n".join([wrapped("\n".join(lines)), *table, f"digest: {kept.digest}"])


def in_words(guarantee: Any, *, up: bool) -> str:
    """A guarantee of a ledger's kind as "rho 0.02", rounded up or down."""
    from jaxdp.adaptive.costs import numbers

    return words(guarantee, numbers(guarantee), up)


def words(kind: Any, sizes: Sequence[Any], up: bool = True) -> str:
    """Numbers of a guarantee, or of a cost under a budget, rounded up or down."""
    from jaxdp.adaptive import costs

    return costs.in_words(kind, sizes, lambda x: rounded(x, _PRECISION, up=up))
