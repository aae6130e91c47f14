"""docs/try.html: its stored numbers are the library's, and its controls show them."""

import importlib.util
import itertools
import json
import math
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
# Rounding up to the next stored number, and what is spared of delta.
ROUNDING = 1.0021


@pytest.fixture(scope="module")
def grid() -> dict[str, Any]:
    """The tables of docs/try_grid.js."""
    text = (DOCS / "try_grid.js").read_text()
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


NODE = shutil.which("node")


def evaluated(expression: str) -> Any:
    """The value of an expression after try_bounds.js, in Node."""
    scripts = [(DOCS / name).read_text() for name in ("try_grid.js", "try_bounds.js")]
    program = "\n".join([*scripts, f"console.log(JSON.stringify({expression}))"])
    done = subprocess.run([NODE or "", "-"], input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def codes(grid, text):
    places = {digit: k for k, digit in enumerate(grid["digits"])}
    return np.array([places[digit] for digit in text]).reshape(-1, 2) @ [len(places), 1]


def numbers(grid, text):
    return grid["least"] * grid["ratio"] ** codes(grid, text)


def exact(noise, rate, steps, delta):
    loss = steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(noise), 1.0, rate, "add_remove"))
    return np.where(np.equal(delta, 0.0), loss.delta(0.0), loss.epsilon(np.maximum(delta, 1e-12)))


def assert_stored(grid, stored, known):
    """At least the library's number, and at most that rounded up.

    Near an epsilon of 0 the share of delta that is spared moves it by some 1e-6.
    """
    assert np.all(stored >= known)
    assert np.all(stored <= np.maximum(known * ROUNDING + 1e-5, grid["least"] * (1.0 + 1e-12)))


@pytest.fixture(scope="module")
def positions(grid):
    """By noise, rate, epochs, and delta: 0, whose number is the advantage, and the stored ones."""
    shape = [len(grid[name]) for name in ("noises", "rates", "epochs", "deltas")]
    return numbers(grid, grid["training"]).reshape(*shape[:3], shape[3] + 1)


def steps_of(epochs, rate):
    return math.ceil(epochs if rate == 1.0 else epochs * 1000.0 / round(1000.0 * rate, 12))


def test_a_notebook_has_the_same_positions(grid):
    for name in ("noises", "batches", "records", "epochs"):
        assert grid[name] == getattr(dp.explore, name.upper())
    (deltas,) = re.findall(r"SHOWN_DELTAS = (.*);", (DOCS / "try.js").read_text())
    assert json.loads(deltas) == dp.explore.DELTAS


def test_positions_are_the_librarys_numbers(grid, positions, draw):
    i, j, k = (draw.choice(count, 4) for count in positions.shape[:3])
    noise, rate, epochs = (np.array(grid[name]) for name in ("noises", "rates", "epochs"))
    column = draw.choice(np.arange(1, positions.shape[3]), 4)
    steps = [steps_of(*pair) for pair in zip(epochs[k], rate[j], strict=True)]
    known = exact(noise[i], rate[j], np.array(steps), np.array(grid["deltas"])[column - 1])
    assert_stored(grid, positions[i, j, k, column], known)


def test_positions_are_monotone(grid, positions):
    assert np.all(np.diff(positions, axis=0) <= 0)  # more noise
    assert np.all(np.diff(positions, axis=2) >= 0)  # more steps
    assert np.all(np.diff(positions[..., 1:], axis=3) >= 0)  # a smaller delta
    # Twice the rate in as many steps, which are twice the epochs.
    twice = {
        k: grid["epochs"].index(2 * x)
        for k, x in enumerate(grid["epochs"])
        if 2 * x in grid["epochs"]
    }
    assert len(twice) >= 8
    for k, other in twice.items():
        assert np.all(positions[:, 1:-1, other] >= positions[:, :-2, k])


def test_answers_are_the_librarys_numbers(grid):
    deltas = np.array([0.0, *grid["deltas"]])
    for kind, noise in (("gaussian", dp.Gaussian), ("laplace", dp.Laplace)):
        stored = numbers(grid, grid["answers"][kind]).reshape(-1, deltas.size)
        assert stored.shape[0] == len(grid["ratios"])
        assert np.all(np.diff(stored, axis=0) <= 0)
        release = dp.Mechanism(noise(np.array(grid["ratios"])[:, None]), 1.0)
        known = np.where(deltas == 0.0, release.delta(0.0), release.epsilon(deltas + 1e-300))
        assert_stored(grid, stored, known)


@pytest.fixture(scope="module")
def script():
    """docs/try_grid.py, which writes the numbers."""
    known = importlib.util.spec_from_file_location("try_grid", DOCS / "try_grid.py")
    module = importlib.util.module_from_spec(known)
    known.loader.exec_module(module)
    return module


def decoded(grid, text, points):
    """Codes of the points between, a list a row."""
    places, at, half = {d: k for k, d in enumerate(grid["digits"])}, 0, len(grid["digits"]) // 2
    for row in points:
        known = codes(grid, text[at : at + 4]).tolist()
        at += 4
        while len(known) < len(row):
            if text[at] == "~":
                known += codes(grid, text[at + 1 : at + 3]).tolist()
                at += 3
            else:
                known.append(places[text[at]] - half + 2 * known[-1] - known[-2])
                at += 1
        yield known
    assert at == len(text)


def test_points_between_are_the_librarys_numbers(grid, script, draw):
    assert list(script.BETWEEN.items()) == list(
        zip(*(grid["finer"][x] for x in ("deltas", "every")), strict=True)
    )
    at = int(draw.choice(len(script.BETWEEN)))
    delta, every = list(script.BETWEEN.items())[at]
    points = list(script.points(every))
    rows = list(decoded(grid, grid["finer"]["codes"][at], points))
    assert len(rows) == len(points)
    assert all(row == sorted(row) for row in rows)  # more steps
    some = [(points[k][-3], rows[k][-3]) for k in draw.choice(len(rows), 4)]
    noise, rate, epochs = np.array([point for point, _ in some]).T
    known = exact(noise, rate, np.ceil(epochs / rate), delta)
    stored = grid["least"] * grid["ratio"] ** np.array([code for _, code in some])
    assert_stored(grid, stored, known)


def test_lines_through_stored_points_are_above_the_librarys_numbers(grid, script, draw):
    beyond = grid["finer"]["beyond"]
    known = beyond[int(draw.choice(len(beyond)))]
    assert [one["delta"] for one in grid["finer"]["beyond"]] == script.BEYOND
    points = list(script.points(1))
    near, far = (list(decoded(grid, grid["finer"]["codes"][at], points)) for at in (0, 1))
    places = np.array([grid["digits"].index(digit) for digit in known["slopes"]])
    parts = script.PARTS
    assert places.size == parts * len(points)
    # Some at random, and some of the largest slopes.
    some = np.array([*draw.choice(places.size, 4), *draw.choice(np.argsort(places)[-200:], 2)])
    rows = some // parts
    at = [-(-(k % parts) * len(near[k // parts]) // parts) for k in some.tolist()]
    low, high = (
        grid["least"] * grid["ratio"] ** np.array([of[k][m] for k, m in zip(rows, at, strict=True)])
        for of in (near, far)
    )
    bounds = low + (known["lowest"] + known["step"] * places[some]) * (high - low)
    chosen = [points[k][m] for k, m in zip(rows, at, strict=True)]
    noise, rate, epochs = np.array(chosen).T
    exactly = exact(noise, rate, np.ceil(epochs / rate), known["delta"])
    assert np.all(bounds >= exactly)
    assert np.all(bounds <= np.maximum(exactly * (1.0 + known["excess"]), 0.01))


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


needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")

# Text, the number above 0 that it is, and the whole one; None if it could be another number.
TYPED_NUMBERS = [
    ("0,125", 0.125, None),
    ("1,100", 1.1, 1100),
    ("12,5", 12.5, None),
    (",5", 0.5, None),
    ("1.5", 1.5, None),
    ("1e-3", 0.001, None),
    ("1e6", 1e6, 1e6),
    ("64000", 64000, 64000),
    ("64,000", 64, 64000),
    ("1,000,000", None, 1_000_000),
    ("64 000", None, 64000),
    ("64.000", 64, None),
    ("64,0000", 64, None),
    ("1,000 000", None, None),
    ("0 125", None, None),
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


needs_chromium = pytest.mark.skipif(browser.CHROMIUM is None, reason="Chromium is not installed")


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
def test_sliders_show_stored_numbers(page, grid, positions, draw):
    page.evaluate("document.getElementById('tab-training').click()")
    assert page.evaluate("typeof ofTraining") == "function"
    column = 1 + grid["deltas"].index(1e-5)
    names = {"noise": "noises", "batch": "batches", "records": "records", "epochs": "epochs"}
    sliders = ", ".join(f"Number(element('{name}-slider').value)" for name in names)
    visited, found = [], []
    for _, moved in zip(range(50), itertools.cycle(names), strict=False):
        here = int(page.evaluate(f"element('{moved}-slider').value"))
        place = here + draw.choice([-3, -2, -1, 1, 2, 3])
        move(page, moved, int(np.clip(place, 0, len(grid[names[moved]]) - 1)))
        places = page.evaluate(f"[{sliders}]")
        noise, batch, records, epochs = (
            grid[x][k] for x, k in zip(names.values(), places, strict=True)
        )
        rate = min(1.0, batch / records)
        i, j, k = places[0], grid["rates"].index(rate), places[3]
        assert shown_epsilon(page) == pytest.approx(positions[i, j, k, column], rel=1e-12)
        assert "exactly these numbers" in page.evaluate("element('source').textContent")
        text = page.evaluate("element('epsilon').textContent")
        (written,) = re.findall(r"ε ≤ ([\d.e+-]+) at", text)
        assert float(written) >= shown_epsilon(page) * (1.0 - 1e-9)
        visited.append((noise, rate, math.ceil(epochs / rate)))
        found.append(shown_epsilon(page))
    noise, rate, steps = np.array(visited).T
    assert_stored(grid, np.array(found), exact(noise, rate, steps, 1e-5))


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
def test_fewer_steps_at_a_higher_rate_cover_the_binomial_number(page):
    for steps, share, nats in [
        (60, 0.5, 25.0),
        (1000, 0.95, 20.0),
        (50_000, 0.7, 23.0),
        (10**7, 0.99, 25.0),
    ]:
        found = page.evaluate(f"stepsAtHigherRate({steps}, {share}, {nats})")
        assert stats.binom.sf(found, steps, share) <= math.exp(-nats)
        deviation = math.sqrt(steps * share * (1.0 - share))
        assert found <= min(steps, steps * share + 1.5 * math.sqrt(2.0 * nats) * deviation)


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


@needs_chromium
@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.long)])
def test_random_inputs_are_safe_and_close(page, count, draw):
    """The figure in the text of the page: 95 of 100 are at most so much above the library's."""
    noise = np.exp(draw.uniform(np.log(0.5), np.log(4.0), count)).round(3)
    records = np.exp(draw.uniform(np.log(3e3), np.log(3e6), count)).round()
    rate = np.exp(draw.uniform(np.log(1e-3), np.log(0.2), count))
    batch = np.maximum(1.0, np.round(records * rate))
    epochs = np.exp(draw.uniform(0.0, np.log(100.0), count)).round(1)
    delta = draw.choice(dp.explore.DELTAS, count)
    rate, steps = batch / records, np.ceil(epochs * records / batch)
    inputs = json.dumps(np.stack([noise, rate, steps, delta], axis=-1).tolist())
    call = "([noise, rate, steps, d]) => upper({noise, rate, steps}, d)?.value ?? null"
    found = page.evaluate(f"{inputs}.map({call})")
    least = page.evaluate(
        f"{inputs}.map(([noise, rate, steps, d]) => lower({{noise, rate, steps}}, d))"
    )
    known = exact(noise, rate, steps, delta)
    shown = np.array([np.inf if x is None else x for x in found])
    assert np.all(shown >= known)
    assert np.all(np.array(least) <= known)
    usual = (known > 0.1) & (known < 20.0) & (rate > 1e-3) & (rate < 0.2)
    # Four deviations of the number of inputs that are above the figure.
    share = 0.95 - 4.0 * np.sqrt(0.05 * 0.95 / usual.sum())
    assert np.quantile(shown[usual] / known[usual] - 1.0, share) <= 0.01 * page.evaluate("MEASURED")
