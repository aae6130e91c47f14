PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Half the suite's time is compilation: this emitter takes two thirds of it, without dear passes less.
QUICK := XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_llvm_disable_expensive_passes=true"

.PHONY: install demo test test-long bench reproduce notebooks format clean

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
	$(QUICK) $(BIN)/pytest -n auto --dist worksteal -m 'not long'

test-long: $(STAMP)
	$(BIN)/pytest -n auto --dist worksteal

bench: $(STAMP)
	$(BIN)/python benchmarks/bench_profile.py
	$(BIN)/python benchmarks/bench_noises.py
	$(BIN)/python benchmarks/bench_accountant.py
	$(BIN)/python benchmarks/bench_inid.py
	$(BIN)/python benchmarks/bench_optimal_noise.py
	$(BIN)/python benchmarks/bench_solvers.py

reproduce: $(STAMP)
	$(BIN)/python benchmarks/reproduce_noises.py
	$(BIN)/python benchmarks/extend_noises.py
	$(BIN)/python benchmarks/reproduce_optimal_noise.py
	$(BIN)/python benchmarks/reproduce_solvers.py
	$(BIN)/python benchmarks/reproduce_pca.py

notebooks: $(STAMP)
	$(BIN)/pytest tests/test_notebooks.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .hypothesis
