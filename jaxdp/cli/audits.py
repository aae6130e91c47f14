"""`jaxdp audit`: an attempt to refute a guarantee, from a file of outputs."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from jaxdp.cli.base import Answer, add_command, library, rounded, wrapped
from jaxdp.cli.record_files import Dialect, Records, require_names
from jaxdp.tables.labels import ColumnError, as_double, normal

# delta of the test of a claim at every delta. chosen: the column of the table in docs/audit.md that
# refutes half of the noise most often from 1,000 and 4,000 outputs
_DELTA = 0.05
# Exit codes. chosen: 1 means refuted
_BAD_INPUT = 2
_NO_CLAIM = 3


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    add_command(app, audit, reads_records=True, failed=_BAD_INPUT)


@dataclasses.dataclass(frozen=True)
class Claim:
    """The guarantee that is claimed, in one of three ways, and the delta of the test."""

    epsilon: Annotated[float | None, typer.Option(help="Claimed epsilon in nats, at --delta.")] = (
        None
    )
    rho: Annotated[float | None, typer.Option(help="Claimed rho of zCDP.")] = None
    gdp: Annotated[float | None, typer.Option(help="Claimed mu of Gaussian DP.")] = None
    delta: Annotated[
        float | None,
        typer.Option(help="delta of the bound; default: 0, and 0.05 with --rho or --gdp."),
    ] = None


@dataclasses.dataclass(frozen=True)
class Columns:
    """The two columns of outputs."""

    first: Annotated[
        str | None, typer.Option(help="Column of outputs on one data set; default: the first.")
    ] = None
    second: Annotated[
        str | None, typer.Option(help="Column of outputs on its neighbour; default: the second.")
    ] = None


@dataclasses.dataclass(frozen=True)
class Test:
    """Confidence, random halves and kind of the test of outputs."""

    confidence: Annotated[
        float, typer.Option(help="1 less the rate at which true claims are refuted.")
    ] = 0.95
    seed: Annotated[int | None, typer.Option(help="Repeat the random halves of another call.")] = (
        None
    )
    low_bits: Annotated[
        bool, typer.Option("--low-bits", help="Test the last bits of the numbers, too.")
    ] = False


def audit(
    claim: Claim,
    columns: Columns,
    test: Test,
    dialect: Dialect,
    file: Annotated[
        Path,
        typer.Argument(help="Outputs on two data sets: CSV with a header, .gz; Parquet; Arrow."),
    ],
) -> Answer:
    """Try to refute a guarantee from outputs on two neighbouring data sets.

    Exit status 0: not refuted, 1: refuted, 2: bad input, 3: no claim to refute.
    """
    claimed, delta = _claimed(claim)
    first, second = _outputs(Records(file, **vars(dialect)), columns)
    of_outputs = library().audit.of_outputs
    import jax  # help does without

    found = of_outputs(
        first,
        second,
        delta=delta,
        claim=claimed,
        confidence=test.confidence,
        key=None if test.seed is None else jax.random.key(test.seed),
        low_bits=test.low_bits,
    )
    sizes = [len(first), len(second)]
    status = _NO_CLAIM if found.is_refuted is None else int(found.is_refuted)
    return {**found._asdict(), "outputs": sizes}, wrapped(_text_of(found, sizes, claim)), status


def _claimed(claim: Claim) -> tuple[Any, float]:
    """The claim, None without one, and the delta of the test."""
    sizes = {k: x for k, x in vars(claim).items() if x is not None and k != "delta"}
    if len(sizes) > 1:
        raise ValueError("give one claim at most: --rho, --gdp, or --epsilon with --delta")
    for name, size in sizes.items():
        if not 0 <= size < math.inf:
            raise ValueError(f"--{name} must be 0 or more and finite, got {size:g}")
    usual = 0.0 if claim.rho is None and claim.gdp is None else _DELTA
    delta = usual if claim.delta is None else claim.delta
    if claim.rho is not None:
        return library().ZCDP(0.0, claim.rho), delta
    if claim.gdp is not None:
        return library().GDP(claim.gdp), delta
    return claim.epsilon, delta


def _outputs(records: Records, columns: Columns) -> list[np.ndarray]:
    """The two columns as finite numbers; `ValueError` with the line of any other cell."""
    file, names = records.file, [name for name in records.names if name]
    require_names(file, names)
    given = [columns.first, columns.second]
    if given == [None, None]:
        if len(names) != 2:
            raise ValueError(
                f"{file} must have two columns of outputs, and has {len(names)} with a name: name "
                "two of them by --first and --second"
            )
        wanted = names
    elif None in given:
        raise ValueError("give both --first and --second, or neither")
    else:
        wanted = [normal(str(name)) for name in given]
        for option, name in zip(("--first", "--second"), wanted, strict=True):
            records.require(name, option)
        if wanted[0] == wanted[1]:
            raise ValueError(
                "--first and --second must be two columns, the outputs on two data sets, got one"
            )
    outputs, before = {name: [np.zeros(0)] for name in wanted}, 0
    with records.located():
        for chunk in records.chunks(wanted, wanted):
            for which, name in zip(("first", "second"), wanted, strict=True):
                values = np.array([*map(as_double, chunk[name])], float)
                outputs[name].append(values)
                if not np.isfinite(values).all():
                    record = before + int(np.argmin(np.isfinite(values))) + 1
                    raise ColumnError(
                        f"the {which} column of outputs must be of finite numbers, and record "
                        f"{record} has none: a run that failed has an output, too",
                        record,
                    )
            before += len(chunk[wanted[0]])
    return [np.concatenate(parts) for parts in outputs.values()]


def _text_of(found: Any, sizes: list[int], claim: Claim) -> str:
    """The audit in words."""
    share = f"{100 * (1.0 - found.confidence):.6g}"
    lines = [
        f"outputs: {sizes[0]:,} on the first data set, {sizes[1]:,} on the second",
        f"epsilon >= {rounded(found.epsilon_lower, 6, up=False)} at delta {found.delta:g}",
    ]
    if found.epsilon_lower > 0:
        lines[-1] += ": no guarantee with a smaller epsilon at this delta is true of them"
    if claim.gdp is not None:
        lines.append(
            f"mu >= {rounded(found.mu_lower, 6, up=False)} of Gaussian differential privacy"
        )
    lines.append(
        f"This holds with confidence {found.confidence:g}: at most {share} of 100 audits report "
        "more than the truth, or refute a true claim."
    )
    if found.is_refuted is None:
        lines.append("no claim to refute: see --epsilon with --delta, --rho, --gdp")
        return "\n".join(lines)
    kinds = {"rho": "rho {:g}", "gdp": "mu {:g}", "epsilon": "epsilon {:g}"}
    ((kind, size),) = ((k, x) for k, x in vars(claim).items() if x is not None and k in kinds)
    stated = f"claim: {kinds[kind].format(size)}"
    if kind == "epsilon":
        stated += f" at delta {found.delta:g}"
    elif math.isfinite(found.claimed):
        stated += f", so epsilon {found.claimed:.6g} at delta {found.delta:g}"
    lines.append(f"{stated}; {found.finding.partition(':')[0]}")
    if not found.is_refuted:
        lines.append(
            "Not refuted is not proved: the test may be weak, other neighbours may differ more, "
            "and more outputs can refute it."
        )
    return "\n".join(lines)
