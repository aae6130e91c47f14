"""`jaxdp ledger`: the spent part of a budget in a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jaxdp.cli.base import AsJson, exit_on_error, library, show, wrapped


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("ledger")(run)


def run(
    file: Annotated[Path, typer.Argument(help="File of a dp.Ledger.")],
    as_json: AsJson = False,
) -> None:
    """Verify a ledger and show its budget, the spent part and the charges."""

    def work() -> dict[str, Any]:
        ledger = library().Ledger(file)
        steps = [
            {"name": step.name, "cost": list(step.cost), "count": step.count}
            for step in ledger.steps
        ]
        parts = {"budget": ledger.budget, "spent": ledger.spent(), "remaining": ledger.remaining()}
        texts = {name: _text_of(guarantee) for name, guarantee in parts.items()}
        return {**texts, "steps": steps, "digest": ledger.digest}

    answer = exit_on_error("ledger", work)
    lines = [f"{name}: {answer[name]}" for name in ("budget", "spent", "remaining")]
    for step in answer["steps"]:
        cost = ", ".join(f"{x:.6g}" for x in step["cost"])
        lines.append(f"  {step['count']} x {step['name']}: {cost}")
    lines.append(f"digest: {answer['digest']}")
    show(as_json, answer, wrapped("\n".join(lines)))


def _text_of(guarantee: Any) -> str:
    """The kind and its numbers."""
    import dataclasses

    import numpy as np

    fields = dataclasses.fields(guarantee)
    numbers = (f"{f.name}={np.asarray(getattr(guarantee, f.name)).tolist()}" for f in fields)
    return f"{type(guarantee).__name__}({', '.join(numbers)})"
