PYTHON ?= python3
# Modules, not scripts: these hold the folder in which they were installed.
PY := .venv/bin/python
RUN := $(PY) -m
STAMP := .venv/.installed
# Workers, and the processes that tests start, read what the first of them has compiled.
unexport PYTHONDONTWRITEBYTECODE
# Compilation takes half of the suite's time. This emitter takes two thirds of that, expensive passes a part,
# and programs that run briefly need no optimisation. XLA exits on unknown flags, as jax 0.11.2 and later do
# on the first one, so it is tried first.
OLDER := --xla_cpu_use_fusion_emitters=false
QUICK = $(shell XLA_FLAGS=$(OLDER) $(PY) -c 'import jax; jax.devices()' 2>/dev/null && echo $(OLDER)) \
  --xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0
PYTEST := $(RUN) pytest -n auto --dist worksteal

.PHONY: install demo test check test-long test-tenth test-oldest fuzz bench reproduce docs try-grid notebooks dist format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(RUN) jaxdp demo

test: $(STAMP)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) pyright
	XLA_FLAGS="$(QUICK)" $(PYTEST) -m 'not long'

# The layers, three noises, and one composition of each engine: in two minutes.
NOISES := offset truncated discrete histogram staircase subbotin
OTHERS := $(foreach noise,$(NOISES),and not $(noise))
ENGINES := 2-laplace or discrete_laplace or removed_gaussian
check: $(STAMP)
	$(RUN) ruff check .
	XLA_FLAGS="$(QUICK)" $(PYTEST) -m 'not long' tests/unit/test_floors.py \
	  tests/contract/test_noise.py tests/contract/test_composition.py \
	  -k 'test_floors or (test_noise $(OTHERS)) or (log_delta_lies and ($(ENGINES)))'

test-long: $(STAMP)
	$(PYTEST)

# A tenth of the long tests, another one after each commit.
test-tenth: $(STAMP)
	XLA_FLAGS="$(QUICK)" $(PYTEST) -m long --tenth $(or $(TENTH),$(shell git rev-list --count HEAD))

# The least version of every dependency, in an environment of its own.
OLDEST := build/oldest/bin/python
test-oldest:
	$(PYTHON) -m venv --clear build/oldest
	$(OLDEST) tests/least_versions.py > build/oldest/pins.txt
	$(OLDEST) -m pip install --quiet --disable-pip-version-check -r build/oldest/pins.txt
	PYTHONPATH=. $(OLDEST) -m jaxdp --help > build/oldest/help.txt
	PYTHONPATH=. $(OLDEST) -m pytest -m 'not long' \
	  -W ignore::DeprecationWarning tests/unit/test_import.py tests/unit/cli/test_commands.py \
	  tests/unit/guarantee/test_budget.py tests/unit/interop/test_dp_accounting.py \
	  tests/unit/optimal/test_optimal_noise.py tests/unit/test_plot.py tests/unit/test_sweep.py \
	  tests/unit/estimators/test_dp_pca.py tests/unit/dpsgd/test_batches.py

fuzz: $(STAMP)
	XLA_FLAGS="$(QUICK)" PYTHONPATH=tests/contract:tests/truth $(PY) -W error tests/contract/fuzz.py

bench: $(STAMP)
	$(RUN) benchmarks.bench_profile
	$(RUN) benchmarks.bench_noises
	$(RUN) benchmarks.bench_accountant
	$(RUN) benchmarks.bench_sampling
	$(RUN) benchmarks.bench_sweep
	$(RUN) benchmarks.bench_inid
	$(RUN) benchmarks.bench_optimal_noise
	$(RUN) benchmarks.bench_solvers
	$(RUN) benchmarks.bench_estimators
	$(RUN) benchmarks.bench_regressions
	$(RUN) benchmarks.bench_accuracy_per_epsilon
	$(RUN) benchmarks.bench_training
	$(RUN) benchmarks.bench_release
	$(RUN) benchmarks.bench_walks
	$(RUN) benchmarks.conformance
	$(RUN) benchmarks.bench_audit

reproduce: $(STAMP)
	$(RUN) benchmarks.reproductions.noises
	$(RUN) benchmarks.reproductions.noises_extended
	$(RUN) benchmarks.reproductions.optimal_noise
	$(RUN) benchmarks.reproductions.solvers
	$(RUN) benchmarks.reproductions.greedy_descent
	$(RUN) benchmarks.reproductions.pca
	$(RUN) benchmarks.reproductions.figures

docs: $(STAMP)
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(RUN) sphinx --fail-on-warning --keep-going docs docs/_build

# The numbers of docs/try.html, in twenty CPU minutes.
try-grid: $(STAMP)
	$(PY) docs/try_grid.py

# Executed, and stored with their outputs.
notebooks: $(STAMP)
	$(PY) docs/execute_notebooks.py

# An sdist without tests and a wheel that works in an environment of its own.
dist: $(STAMP)
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dist]'
	rm -rf dist build/empty
	$(RUN) build
	$(RUN) twine check --strict dist/*
	! tar -tf dist/*.tar.gz | grep /tests/
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[cli]"
	cd build && empty/bin/python -c "import jaxdp; jaxdp.Mechanism" && empty/bin/jaxdp --help

format: $(STAMP)
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

clean:
	rm -rf .venv build dist docs/_build docs/notebooks docs/.jupyter_cache docs/jupyter_execute *.egg-info .pytest_cache .ruff_cache .hypothesis
