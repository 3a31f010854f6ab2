# Two commands on a fresh machine: `make demo`, `make test`. The rest is for those who work on fedtrue.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: env demo test test-all lint docs results benchmark clean

env: $(STAMP)

# The stamp is remade only when the requirements change, so `make env` costs nothing the second time.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fedtrue needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing fedtrue and what its tests need into .venv (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,docs]'
	@$(BIN)/fedtrue data get plays > /dev/null || echo "the plays could not be fetched: tests and the demo that need them will say so"
	@touch $@

demo: env
	@$(BIN)/python examples/demo.py

# Every law, some in a smaller version, with one of its cases; compiled without XLA's optimizer. Needs no network,
# browser or Ray.
test: env
	$(BIN)/python -m pytest -m "not slow" --cases 1 --quick-compilation -n 2 --dist worksteal

# Everything. What checks numbers is compiled as users' programs are, the rest as in `make test`. Tests that lack a
# browser, Ray or the network skip, and say so.
NUMBERS := $(addprefix tests/,benchmarks end_to_end golden laws lowering models theory)
test-all: env
	$(BIN)/python -m pytest --quick-compilation -n 2 --dist worksteal $(NUMBERS:%=--ignore=%)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(NUMBERS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The page of results from the kept records; nothing is trained.
results: env
	$(BIN)/python experiments/results.py

# Speed beside other simulators; installs them on first use (3 GB), wants an idle machine for a quarter of an hour.
benchmark: env
	$(BIN)/python benchmarks/peers/bench.py

clean:
	rm -rf .venv .cache site demo runs
