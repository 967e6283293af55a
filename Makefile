# Development commands. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON  ?= python3
WORKERS ?= 2
VENV    := .venv
BIN     := $(VENV)/bin
EXTRAS  := dev,bench,bayes,ray,dask,docs
STAMP   := $(VENV)/.setup-stamp

# One thread per process: the workers are what runs in parallel.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# Install the package with the extras $(1), one short line per package. The full output
# is kept in a log, and its end is shown when the installation fails.
define install
$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
	-e ".[$(1)]" -c constraints.txt 2>&1 | tee $(VENV)/setup.log \
	| awk '/^(Collecting|Processing)/ { sub(/.*\//, "", $$2); print "  found " $$2; fflush() } \
		/^Installing collected/ { print "  installing " NF - 3 " packages"; fflush() }' \
	|| { tail -n 40 $(VENV)/setup.log >&2; exit 1; }
endef

.PHONY: help setup demo test lint bench docs clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with all that development needs

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing sharpgp and its development tools (minutes the first time)"
	@$(call install,$(EXTRAS))
	@touch $@
	@echo "Ready: $(BIN)/sharpgp"

demo: setup ## fit, compare and plot on embedded data; writes demo/
	@$(BIN)/sharpgp demo

lint: setup ## style, format, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## lint, then the tests and doctests
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

bench: setup ## run the benchmarks that take minutes (benchmarks/peers.py takes hours)
	@for name in calibration_speed training baselines_check runner_overhead bo_overhead any_mean drift; do \
		echo "== benchmarks/$$name.py"; $(ONE_THREAD) $(BIN)/python "benchmarks/$$name.py" || exit 1; \
	done

docs: setup ## build the site into docs/_build/html; warnings are errors
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean: ## remove build products and caches; keeps .venv
	rm -rf build dist src/*.egg-info docs/_build docs/examples demo \
		.pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis .coverage htmlcov
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
