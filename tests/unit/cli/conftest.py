"""The command line in this process."""

import pytest
import typer
from typer.testing import CliRunner

from jaxdp.cli import build_app


@pytest.fixture(scope="module")
def run():
    """`run("epsilon", ...)`: what the command did with these arguments, as texts."""
    app, runner = build_app(typer), CliRunner()
    return lambda *asked, **keys: runner.invoke(app, [*map(str, asked)], **keys)
