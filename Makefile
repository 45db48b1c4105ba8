# `make test` and `make demo` need nothing but python3, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto

.PHONY: install setup test check bench demo fuzz soak lock reference screenshots system clean

# Only what is used gets compiled, when it is used: compiling everything takes longer than the demo. It is kept, whatever the
# environment says: tests start hundreds of programs, and each would compile half of the project again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# What it takes to use dralloc; `setup` adds what it takes to work on it.
install: $(VENV)/.runtime
	@echo "dralloc is in $(BIN); this puts it on your path: . $(BIN)/activate"

setup: $(VENV)/.installed

$(VENV)/.installed: $(VENV)/.runtime requirements/dev.txt
	@echo "installing what development needs into $(VENV): about a minute, once"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt requirements/build.txt pyproject.toml
	@echo "installing dralloc into $(VENV): about a minute, once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# Programs that tests drive for real (kubectl, …); says what is missing where it cannot install them.
system:
	scripts/install-system-tools

test: setup system
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	for driver in examples/drivers/*/; do $(BIN)/mypy --no-explicit-package-bases $$driver || exit 1; done
	$(BIN)/python -m pytest -q tests/tidy

bench: setup
	$(BIN)/python -m bench $(ARGS)

demo: $(VENV)/.runtime
	@$(BIN)/python -m scripts.demo $(ARGS)

# An hour's worth of random cases for parsers and selectors: far more examples than `make test` draws.
fuzz: setup
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(WORKERS) -o timeout=0 -m fuzz $(ARGS)

# Simulated hours with faults, for as many seeds as you like: make soak SEEDS=100-120 HOURS=10
SEEDS ?= 0-9
HOURS ?= 10
soak: setup
	$(BIN)/python -m dralloc.simulator --seeds $(SEEDS) --hours $(HOURS)

# Writes docs/reference from the code.
reference: setup
	$(BIN)/python -m scripts.write_reference

# Rewrites the locked dependencies from pyproject.toml: what tests need, and the part of it that images hold.
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --quiet
lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) pyproject.toml --group dev -o requirements/dev.txt
	$(LOCK) pyproject.toml --constraint requirements/dev.txt -o requirements/runtime.txt
	echo hatchling | $(LOCK) - --constraint requirements/dev.txt --no-annotate -o requirements/build.txt

# The pictures of the web page in the documents, taken anew.
screenshots: setup system
	$(BIN)/python -m scripts.take_screenshots

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
