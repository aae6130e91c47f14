PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Half the suite's time is compilation: this emitter takes two thirds of it, without dear passes less,
# and half of that without any, where what is compiled does little.
QUICK := --xla_cpu_use_fusion_emitters=false --xla_llvm_disable_expensive_passes=true
QUICKEST := $(QUICK) --xla_backend_optimization_level=0
PYTEST := $(BIN)/pytest -n auto --dist worksteal

.PHONY: install demo test check test-long fuzz bench reproduce docs notebooks dist format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/jaxdp demo

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	XLA_FLAGS="$(QUICKEST)" $(PYTEST) -m 'not long and not heavy'
	XLA_FLAGS="$(QUICK)" $(PYTEST) -m 'not long and heavy'

# The house, three noises, and one composition of each engine: in two minutes.
NOISES := offset truncated discrete histogram staircase subbotin
OTHERS := $(foreach noise,$(NOISES),and not $(noise))
ENGINES := laplace-None or discrete_laplace or removed_gaussian
check: $(STAMP)
	$(BIN)/ruff check .
	XLA_FLAGS="$(QUICKEST)" $(PYTEST) -m 'not long and not heavy' tests/test_floors.py \
	  tests/noise/test_noise.py tests/accountant/test_accountant_contract.py \
	  -k 'test_floors or (test_contract $(OTHERS)) or (log_delta_lies and ($(ENGINES)))'

test-long: $(STAMP)
	$(PYTEST)

fuzz: $(STAMP)
	XLA_FLAGS="$(QUICKEST)" PYTHONPATH=tests $(BIN)/python -W error tests/fuzz.py

bench: $(STAMP)
	$(BIN)/python -m benchmarks.bench_profile
	$(BIN)/python -m benchmarks.bench_noises
	$(BIN)/python -m benchmarks.bench_accountant
	$(BIN)/python -m benchmarks.bench_sampling
	$(BIN)/python -m benchmarks.bench_sweep
	$(BIN)/python -m benchmarks.bench_inid
	$(BIN)/python -m benchmarks.bench_optimal_noise
	$(BIN)/python -m benchmarks.bench_solvers
	$(BIN)/python -m benchmarks.bench_estimators
	$(BIN)/python -m benchmarks.bench_training
	$(BIN)/python -m benchmarks.bench_release
	$(BIN)/python -m benchmarks.bench_audit

reproduce: $(STAMP)
	$(BIN)/python -m benchmarks.reproductions.noises
	$(BIN)/python -m benchmarks.reproductions.noises_extended
	$(BIN)/python -m benchmarks.reproductions.optimal_noise
	$(BIN)/python -m benchmarks.reproductions.solvers
	$(BIN)/python -m benchmarks.reproductions.pca
	$(BIN)/python -m benchmarks.reproductions.figures

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build --fail-on-warning --keep-going docs docs/_build

# Executed, and stored with their outputs.
notebooks: $(STAMP)
	$(BIN)/python docs/execute_notebooks.py

# An sdist without tests and a wheel that works in an environment of its own.
dist: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dist]'
	rm -rf dist build/empty
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	! tar -tf dist/*.tar.gz | grep /tests/
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[cli]"
	cd build && empty/bin/python -c "import jaxdp; jaxdp.Mechanism" && empty/bin/jaxdp --help

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist docs/_build docs/notebooks docs/.jupyter_cache docs/jupyter_execute *.egg-info .pytest_cache .ruff_cache .hypothesis
