"""docs/try.html: its stored numbers are the library's, and its controls show them."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest
from scipy import stats

import jaxdp as dp

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = (DOCS / "try.js").read_text()
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
needs_chromium = pytest.mark.skipif(browser.CHROMIUM is None, reason="Chromium is not installed")
# Rounding up to the next stored number, and what is spared of delta.
ROUNDING = 1.0021


def evaluated(expression: str) -> Any:
    """The value of an expression after try_bounds.js, in Node."""
    scripts = [(DOCS / name).read_text() for name in ("try_grid.js", "try_bounds.js")]
    program = "\n".join([*scripts, f"console.log(JSON.stringify({expression}))"])
    done = subprocess.run([NODE or "", "-"], input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def grid() -> dict[str, Any]:
    """The tables of docs/try_grid.js."""
    text = (DOCS / "try_grid.js").read_text()
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


@pytest.fixture(scope="module")
def positions():
    """By noise, rate, epochs, and delta: 0, whose number is the advantage, and the stored ones."""
    of_epochs = "GRID.epochs.map((epochs) => positionOf({noise, rate, epochs}))"
    of_rates = f"GRID.rates.map((rate) => {of_epochs})"
    return np.array(evaluated(f"GRID.noises.map((noise) => {of_rates})"))


def exact(noise, rate, steps, delta):
    loss = steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(noise), 1.0, rate, "add_remove"))
    return np.where(np.equal(delta, 0.0), loss.delta(0.0), loss.epsilon(np.maximum(delta, 1e-12)))


def assert_stored(stored, known, ratio=ROUNDING, least=1e-3):
    """At least the library's number, and at most that rounded up.

    Near an epsilon of 0 the share of delta that is spared moves it by some 1e-6.
    """
    assert np.all(stored >= known)
    assert np.all(stored <= np.maximum(known * ratio + 1e-5, least * (1.0 + 1e-12)))


def test_a_notebook_has_the_same_positions(grid):
    for name in ("noises", "batches", "records", "epochs"):
        assert grid[name] == getattr(dp.explore, name.upper())
    (deltas,) = re.findall(r"SHOWN_DELTAS = (.*);", SCRIPT)
    assert json.loads(deltas) == dp.explore.DELTAS


@needs_node
def test_stored_numbers_are_the_librarys(grid, draw):
    """Two positions at each delta, and two of the points between where there are any."""
    count = len(grid["noises"]) * len(grid["rates"])
    places = [
        (delta, *draw.uniform(size=2), most)
        for delta in [0.0, *grid["deltas"]]
        for most in (count, count, 1e9, 1e9)
    ]
    found = evaluated(
        f"{json.dumps(places)}.map(([delta, u, v, most]) => {{"
        "const rows = listAt(delta), row = rows[Math.floor(u * Math.min(most, rows.length))];"
        "const k = Math.floor(v * row.codes.length);"
        "return [row.noise, row.rate, row.steps[k], delta, stored(row.codes[k]), row.excess];})"
    )
    *training, stored, excess = np.array(found).T
    # Slopes through stored points are measured from an epsilon of .01 on.
    is_slope = excess > ROUNDING - 1.0 + 1e-9
    least = np.where(is_slope, 0.01, grid["least"])
    assert set(training[3][is_slope]) == {one["delta"] for one in grid["finer"]["beyond"]}
    assert_stored(stored, exact(*training), 1.0 + excess, least)


@needs_node
def test_stored_numbers_are_monotone(grid, positions):
    assert np.all(np.diff(positions, axis=0) <= 0)  # more noise
    assert np.all(np.diff(positions, axis=2) >= 0)  # more steps
    assert np.all(np.diff(positions[..., 1:], axis=3) >= 0)  # a smaller delta
    # Twice the rate in as many steps, which are twice the epochs.
    epochs = grid["epochs"]
    twice = [(k, epochs.index(2 * x)) for k, x in enumerate(epochs) if 2 * x in epochs]
    assert len(twice) >= 8
    for k, other in twice:
        assert np.all(positions[:, 1:-1, other] >= positions[:, :-2, k])
    rises = "row.codes.every((code, k) => k === 0 || code >= row.codes[k - 1])"
    assert evaluated(f"GRID.finer.deltas.every((delta) => listAt(delta).every((row) => {rises}))")


@needs_node
@pytest.mark.parametrize("kind", ["Gaussian", "Laplace"])
def test_answers_are_the_librarys_numbers(grid, kind):
    values = evaluated(f"GRID.ratios.map((x) => answer('{kind.lower()}', x).values)")
    assert np.all(np.diff(values, axis=0) <= 0)
    release = dp.Mechanism(getattr(dp, kind)(np.array(grid["ratios"])[:, None]), 1.0)
    known = [release.delta(0.0), release.epsilon(np.array(grid["deltas"]))]
    assert_stored(values, np.concatenate(known, axis=1))


def test_the_page_is_small_and_needs_no_network():
    files = sorted(DOCS.glob("try*.*"))
    assert [path.suffix for path in files].count(".js") == 4
    assert sum(path.stat().st_size for path in files) <= 1.5e6
    for path in files:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|fetch\(|XMLHttpRequest|import\(", text), path.name
    listed = re.findall(r'(?:src|href)="(try[\w.]*)"', (DOCS / "try.html").read_text())
    published = re.findall(r"^html_extra_path.*", (DOCS / "conf.py").read_text(), re.MULTILINE)
    assert {"try.html", *listed} == set(re.findall(r'"([\w.]+)"', "".join(published)))


# Text, the number above 0 that it is, and the whole one; None if it could be another number.
TYPED_NUMBERS = [
    ("0,125", 0.125, None),
    ("1,100", 1.1, 1100),
    (",5", 0.5, None),
    ("1e-3", 0.001, None),
    ("1e6", 1e6, 1e6),
    ("64000", 64000, 64000),
    ("64,000", 64, 64000),
    ("1,000,000", None, 1_000_000),
    ("64 000", None, 64000),
    ("64.000", 64, None),
    ("64,0000", 64, None),
    ("1,000 000", None, None),
    ("0,125,000", None, None),
    ("0125", None, None),
    ("1.000,5", None, None),
    ("0x10", None, None),
    ("-1", None, None),
    ("0,0", None, None),
    ("Infinity", None, None),
    ("1e999", None, None),
    ("", None, None),
]


@needs_node
def test_only_whole_numbers_have_marks_of_thousands():
    texts = json.dumps([text for text, *_ in TYPED_NUMBERS])
    found = evaluated(f"{texts}.map((x) => [x, parsed(x, {{}}), parsed(x, {{ whole: true }})])")
    assert [tuple(row) for row in found] == TYPED_NUMBERS


# Steps, share of them that is taken, and nats of the probability that more are.
STEPS = [(60, 0.5, 25.0), (1000, 0.95, 20.0), (50_000, 0.7, 23.0), (10**7, 0.99, 25.0)]


@needs_node
def test_fewer_steps_at_a_higher_rate_cover_the_binomial_number():
    found = np.array(evaluated(f"{json.dumps(STEPS)}.map((x) => stepsAtHigherRate(...x))"))
    steps, share, nats = np.array(STEPS).T
    assert np.all(stats.binom.sf(found, steps, share) <= np.exp(-nats))
    deviation = np.sqrt(steps * share * (1.0 - share))
    most = steps * share + 1.5 * np.sqrt(2.0 * nats) * deviation
    assert np.all(found <= np.minimum(steps, most))


@needs_node
def test_the_drawn_profile_is_an_upper_bound(grid):
    release = dp.Mechanism(dp.Gaussian(0.15), 1.0)
    deltas = np.array(grid["deltas"])
    epsilons = [float(x) for x in release.epsilon(deltas)]
    points = evaluated(f"stepped(profileOf({float(release.delta(0.0))}, {epsilons}))")
    assert len(points) > 18
    shares = np.arange(1, 16) / 16
    for before, after in itertools.pairwise(points):
        # Straight on the picture, whose axis of delta is logarithmic.
        known = (1 - shares) * before["epsilon"] + shares * after["epsilon"]
        drawn = before["delta"] ** (1 - shares) * after["delta"] ** shares
        level = before["delta"] == after["delta"]
        assert level or before["epsilon"] == after["epsilon"]
        assert np.all(release.delta(known) <= (drawn if level else before["delta"]))


@needs_node
@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.long)])
def test_random_inputs_are_safe_and_close(count, draw):
    """The figure in the text of the page: 95 of 100 are at most so much above the library's."""
    noise = np.exp(draw.uniform(np.log(0.5), np.log(4.0), count)).round(3)
    records = np.exp(draw.uniform(np.log(3e3), np.log(3e6), count)).round()
    rate = np.exp(draw.uniform(np.log(1e-3), np.log(0.2), count))
    batch = np.maximum(1.0, np.round(records * rate))
    epochs = np.exp(draw.uniform(0.0, np.log(100.0), count)).round(1)
    (deltas,) = re.findall(r"SHOWN_DELTAS = (.*);", SCRIPT)
    delta = draw.choice(json.loads(deltas), count)
    rate, steps = batch / records, np.ceil(epochs * records / batch)
    inputs = json.dumps(np.stack([noise, rate, steps, delta], axis=-1).tolist())
    found = evaluated(
        f"{inputs}.map(([noise, rate, steps, delta]) => {{"
        "const training = {noise, rate, steps};"
        "return [upper(training, delta)?.value ?? null, lower(training, delta)];})"
    )
    shown = np.array([np.inf if x is None else x for x, _ in found])
    known = exact(noise, rate, steps, delta)
    assert np.all(shown >= known)
    assert np.all(np.array([x for _, x in found]) <= known)
    usual = (known > 0.1) & (known < 20.0) & (rate > 1e-3) & (rate < 0.2)
    # Four deviations of the number of inputs that are above the figure.
    share = 0.95 - 4.0 * np.sqrt(0.05 * 0.95 / usual.sum())
    (measured,) = re.findall(r"MEASURED = ([\d.]+)", SCRIPT)
    assert np.quantile(shown[usual] / known[usual] - 1.0, share) <= 0.01 * float(measured)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    address = (DOCS / "try.html").as_uri()
    with browser.Page(address, tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(opened):
    """As it begins, whatever other tests have done with it."""
    opened.load()
    yield opened
    assert opened.errors == []


def shown_epsilon(page):
    return float(page.evaluate("document.getElementById('epsilon').dataset.epsilon"))


def move(page, name, place):
    """Step a slider to a place by its keys, as somebody without a mouse does."""
    page.evaluate(f"document.getElementById('{name}-slider').focus()")
    here = int(page.evaluate("document.activeElement.value"))
    for _ in range(abs(place - here)):
        page.press("ArrowRight" if place > here else "ArrowLeft")
    assert int(page.evaluate("document.activeElement.value")) == place


@needs_chromium
@needs_node
def test_sliders_show_stored_numbers(page, grid, positions, draw):
    page.evaluate("document.getElementById('tab-training').click()")
    assert page.evaluate("typeof ofTraining") == "function"
    column = 1 + grid["deltas"].index(1e-5)
    names = {"noise": "noises", "batch": "batches", "records": "records", "epochs": "epochs"}
    sliders = ", ".join(f"Number(element('{name}-slider').value)" for name in names)
    for _, moved in zip(range(50), itertools.cycle(names), strict=False):
        here = int(page.evaluate(f"element('{moved}-slider').value"))
        place = here + draw.choice([-3, -2, -1, 1, 2, 3])
        move(page, moved, int(np.clip(place, 0, len(grid[names[moved]]) - 1)))
        i, batch, records, k = page.evaluate(f"[{sliders}]")
        rate = min(1.0, grid["batches"][batch] / grid["records"][records])
        stored = positions[i, grid["rates"].index(rate), k, column]
        assert shown_epsilon(page) == pytest.approx(stored, rel=1e-12)
        assert "exactly these numbers" in page.evaluate("element('source').textContent")
        text = page.evaluate("element('epsilon').textContent")
        (written,) = re.findall(r"ε ≤ ([\d.e+-]+) at", text)
        assert float(written) >= shown_epsilon(page) * (1.0 - 1e-9)


TYPED = {"noise": "1.234", "batch": "300", "records": "60,000", "epochs": "12.5"}


@needs_chromium
def test_typed_numbers_go_to_the_safe_side(page):
    page.evaluate("document.getElementById('tab-training').click()")
    for name, text in TYPED.items():
        page.evaluate(f"document.getElementById('{name}').focus()")
        page.write(text)
    known = float(dp.dpsgd.epsilon(1.234, 1e-5, dataset_size=60_000, batch_size=300, epochs=12.5))
    assert known <= shown_epsilon(page) <= 1.12 * known
    source = page.evaluate("element('source').textContent")
    assert 0.8 * known < float(re.findall(r"at least ([\d.]+),", source)[0]) <= known
    assert "too large" in source
    lines = page.evaluate("element('python').textContent").splitlines()
    names: dict[str, object] = {}
    exec(lines[0], names)
    assert float(eval(lines[1], names)) == known
    page.evaluate("document.getElementById('noise').focus()")
    page.write("none")
    assert page.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
    assert not page.evaluate("document.getElementById('noise-error').hidden")


@needs_chromium
def test_one_answer(page):
    page.evaluate("document.getElementById('tab-answer').click()")
    move(page, "sensitivity", 5)
    sensitivity = float(page.evaluate("document.getElementById('sensitivity').value"))
    page.evaluate("document.getElementById('scale').focus()")
    page.write("7.77")
    known = float(dp.Mechanism(dp.Gaussian(7.77), sensitivity).epsilon(1e-5))
    assert known <= shown_epsilon(page) <= 1.02 * known
    page.evaluate("element('kind').value = 'laplace'")
    page.evaluate("element('kind').dispatchEvent(new Event('change'))")
    known = float(dp.Mechanism(dp.Laplace(7.77), sensitivity).epsilon(1e-5))
    assert known <= shown_epsilon(page) <= 1.02 * known
