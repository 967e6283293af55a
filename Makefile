# Development commands. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON  ?= python3
WORKERS ?= 2
MINUTES ?= 40
VENV    := .venv
BIN     := $(VENV)/bin
EXTRAS  := cli,excel,plots,report,skops,ray,dask,docs,dev
EVIDENCE := training runner_overhead choosing drift
STAMP   := $(VENV)/.setup-stamp
# The files that carry the address of the repository.
ADDRESSED := pyproject.toml README.md CITATION.cff
COVERED := src/sharpgp/gp/*,src/sharpgp/models/*,src/sharpgp/data/folds.py,src/sharpgp/calibration/*,src/sharpgp/distribution.py,src/sharpgp/metrics/*
COVERED_BY := tests src/sharpgp/gp src/sharpgp/models src/sharpgp/data/folds.py src/sharpgp/calibration src/sharpgp/metrics src/sharpgp/distribution.py

# One thread per process: the workers are what runs in parallel.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# pytest compiles the tests once and keeps them, unless the environment forbids it.
unexport PYTHONDONTWRITEBYTECODE

# Half of the tests for each worker, one after the other, so that few fixtures are made twice; who
# is done first takes from the other.
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Install the package with the extras $(1) and the laboratory, one short line per package. The full output
# is kept in a log, and its end is shown when the installation fails.
define install
$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
	-e ".[$(1)]" -e "./benchmarks[bayes]" -c constraints.txt 2>&1 | tee $(VENV)/setup.log \
	| awk '/^(Collecting|Processing)/ { sub(/.*\//, "", $$2); print "  found " $$2; fflush() } \
		/^Installing collected/ { print "  installing " NF - 3 " packages"; fflush() }' \
	|| { tail -n 40 $(VENV)/setup.log >&2; exit 1; }
endef

# Tests whose outcome hangs on rounding, and the settings under which NumPy, SciPy and torch
# calculate like other processors.
NUMERICAL := $(foreach part,dense covariance posterior posterior_contract training sparse ranks \
	tails distribution weighted quantile levels inplace warped additive priors,tests/test_$(part).py)
OLD_KERNELS := OPENBLAS_CORETYPE=Prescott ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE
AVX2_KERNELS := OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2
TWO_THREADS := OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2

.PHONY: help setup demo test test-slow test-kernels style lint stress planted coverage test-oldest audit bench docs dist address publishable conda clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with all that development needs

$(STAMP): pyproject.toml benchmarks/pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing sharpgp, its laboratory and development tools (minutes the first time)"
	@$(call install,$(EXTRAS))
	@touch $@
	@echo "Ready: $(BIN)/sharpgp"

demo: setup ## fit, compare and plot on embedded data; writes demo/
	@$(BIN)/sharpgp demo

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

lint: style ## style, format, import rules and types
	$(BIN)/mypy

# The type checker runs on one core, for a minute on a new machine: beside the tests, not before.
test: style ## lint, and the tests and doctests that take seconds: minutes in all
	@echo "$(BIN)/mypy, beside the tests; its findings come last"; \
	$(BIN)/mypy > $(VENV)/types.log 2>&1 & checker=$$!; types=0; tests=0; \
	$(PYTEST) -m "not slow" || tests=$$?; \
	$(PYTEST) -m "not slow" benchmarks || tests=$$?; \
	wait $$checker || types=$$?; cat $(VENV)/types.log; test $$tests = 0 -a $$types = 0

test-slow: setup ## the other tests: the site, the examples, samplers, simulations
	$(PYTEST) -m slow
	$(PYTEST) -m slow benchmarks

test-kernels: setup ## numerical tests with the kernels of other processors, and on two threads
	$(OLD_KERNELS) $(PYTEST) -m "not slow" $(NUMERICAL)
	$(AVX2_KERNELS) $(PYTEST) -m "not slow" $(NUMERICAL)
	$(TWO_THREADS) $(BIN)/python -m pytest -m "not slow" $(NUMERICAL)

stress: setup ## generated data, bad input, damaged files, faults (MINUTES=40)
	$(ONE_THREAD) PYTHONPATH=tests $(BIN)/python -m stress --workers $(WORKERS) --minutes $(MINUTES)

planted: setup ## plant known bugs in a copy of the source; the tests must notice each
	$(ONE_THREAD) $(BIN)/python tests/stress/planted.py

coverage: setup ## line and branch coverage of the numerical parts; fails below 95 %
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow" --cov=sharpgp --cov-report= \
		$(COVERED_BY)
	$(BIN)/python -m coverage report --skip-covered --fail-under=95 --include="$(COVERED)"

test-oldest: ## the tests with the oldest versions that pyproject.toml allows, in .venv-oldest
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install -q --disable-pip-version-check \
		-e ".[$(EXTRAS)]" -e "./benchmarks[bayes]" -c constraints-oldest.txt
	$(ONE_THREAD) .venv-oldest/bin/python -m pytest -n $(WORKERS)
	$(ONE_THREAD) .venv-oldest/bin/python -m pytest -n $(WORKERS) benchmarks

audit: ## known vulnerabilities of the pinned versions; asks pypi.org
	@test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install -q --disable-pip-version-check pip-audit
	.venv-audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip

bench: setup ## run the studies that take minutes (sharpgp bench peers takes hours)
	@for name in $(EVIDENCE); do \
		echo "== sharpgp bench evidence $$name"; \
		$(ONE_THREAD) $(BIN)/sharpgp bench evidence "$$name" || exit 1; \
	done

docs: setup ## build the site into docs/_build/html; warnings are errors
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

dist: setup ## sdist and wheels into dist/, checked; the version is that of src/sharpgp/__init__.py
	rm -rf dist
	$(BIN)/python -c 'from setuptools import build_meta as b; b.build_sdist("dist"); b.build_wheel("dist")'
	cd benchmarks && ../$(BIN)/python -c 'from setuptools import build_meta as b; b.build_wheel("../dist")'
	$(BIN)/python -m pytest -q tests/test_distribution_files.py

address: ## put in the address of the project's repository, with badges and links (REPOSITORY=name/sharpgp)
	@test -n "$(REPOSITORY)" || { echo "REPOSITORY: expected owner/name, found none"; exit 2; }
	@for file in $(ADDRESSED); do \
		sed -i.old -e "s#OWNER/sharpgp#$(REPOSITORY)#g" \
			-e 's/^#address //' -e '/^<!--address$$/d' -e '/^address-->$$/d' \
			-e "s#OWNER.github.io/sharpgp#$(subst /,.github.io/,$(REPOSITORY))#g" "$$file" && rm "$$file.old"; \
	done

publishable: ## fail while OWNER stands for the address, or CHANGELOG.md lacks the version; before a release
	@! grep -n OWNER $(ADDRESSED) || { echo "expected the address of the repository, found OWNER: make address REPOSITORY=name/sharpgp"; exit 2; }
	@version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/sharpgp/__init__.py); \
		grep -q "^## .*$$version" CHANGELOG.md || { echo "CHANGELOG.md: expected a section for $$version, found none"; exit 2; }

conda: ## a conda package by rattler-build, from conda/recipe.yaml
	SHARPGP_VERSION=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/sharpgp/__init__.py) \
		rattler-build build --recipe conda --output-dir dist/conda

clean: ## remove build products and caches; keeps .venv
	rm -rf build dist src/*.egg-info benchmarks/build benchmarks/src/*.egg-info docs/_build docs/examples demo \
		.pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis .coverage htmlcov
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
