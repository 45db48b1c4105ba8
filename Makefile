# `make test` and `make demo` need only python3, make and a package registry.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto

.PHONY: install setup system quick test check check-format check-lint check-types check-tidy bench demo fuzz soak lock reference \
	site screenshots dist image clean

# Modules are compiled when they are first imported: compiling everything takes longer than the demo. The result is kept even if the
# environment says otherwise, because tests start hundreds of programs, and each would compile half of the project again.
unexport PYTHONDONTWRITEBYTECODE
# The locked files have all dependencies: without --no-deps, pip would also look at releases that came later, and refuse those with extras.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps

# Everything to use dralloc; `setup` adds everything to develop it.
install: $(VENV)/.runtime
	@echo "dralloc is in $(BIN); to put it on your path: . $(BIN)/activate"

setup: $(VENV)/.installed

$(VENV)/.installed: $(VENV)/.runtime requirements/dev.txt
	@echo "installing development dependencies into $(VENV): about a minute, once"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt requirements/build.txt pyproject.toml
	@echo "installing dralloc into $(VENV): about a minute, once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@$(PIP) --no-build-isolation -e .
	@touch $@

# Programs that tests use (kubectl, chromium, …); prints what is missing if it cannot install them.
system:
	scripts/install-system-tools

# About two minutes of processor time: no slow tests, nothing that `make system` installs, nothing that `make check` runs. Run it all the time; `make test` before you push.
quick: setup
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not real" --ignore tests/tidy $(ARGS)

test: setup system
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# The hooks of .pre-commit-config.yaml are these four.
check: check-format check-lint check-types check-tidy

check-format: setup
	$(BIN)/ruff format --check .

check-lint: setup
	$(BIN)/ruff check .

check-types: setup
	$(BIN)/mypy
	for driver in $(dir $(wildcard examples/drivers/*/driver.py)); do $(BIN)/mypy --no-explicit-package-bases $$driver || exit 1; done

check-tidy: setup
	$(BIN)/python -m pytest -q tests/tidy

# TRACES: a directory with public traces, for `placement`.
bench: setup
	$(BIN)/python -m bench $(ARGS)

demo: $(VENV)/.runtime
	@$(BIN)/python -m scripts.demo $(ARGS)

# Random requests to a server, then random cases for parsers and selectors for about an hour: many more than `make test` generates.
REQUESTS ?= 1000000
fuzz: setup
	$(BIN)/python -m scripts.fuzz_requests --count $(REQUESTS)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(WORKERS) -o timeout=0 -m fuzz $(ARGS)

# Simulated steps with faults, one run for each seed, and kills of a real cluster: make soak SEEDS=100-120 STEPS=10000 KILLS=200
SEEDS ?= 0-99
STEPS ?= 10000
KILLS ?= 1000
soak: setup
	$(BIN)/python -m tests.simulator --seeds $(SEEDS) --steps $(STEPS) --workers 2
	$(BIN)/python -m tests.campaign.campaign --kills $(KILLS)

# Writes docs/reference from the code.
reference: setup
	$(BIN)/python -m scripts.write_reference

# Rewrites the locked dependencies from pyproject.toml: those of tests, and the subset that images contain.
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --quiet
lock: setup
	$(LOCK) pyproject.toml --group dev -o requirements/dev.txt
	$(LOCK) pyproject.toml --constraint requirements/dev.txt -o requirements/runtime.txt
	echo hatchling | $(LOCK) - --constraint requirements/dev.txt --no-annotate -o requirements/build.txt

# Builds the documentation site into SITE. A warning, such as a link that leads nowhere, is an error.
SITE ?= build/site
site: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -d $(SITE)-cache . $(SITE)
	@echo "open $(SITE)/index.html"

# Takes the pictures of the web page and of the terminal in the documents again.
screenshots: setup system
	$(BIN)/python -m scripts.take_screenshots
	$(BIN)/python -m scripts.draw_terminal

# What a release consists of, in dist/: wheel, source archive, kubectl plugins with their krew manifest, checksums.
# DOWNLOADS: the address that users will download the files from; ARGS=--help lists what else can be chosen.
DOWNLOADS ?= https://example.com/dralloc
dist: setup
	$(BIN)/python -m scripts.build_dist --downloads $(DOWNLOADS) $(ARGS)

# The image, from the wheel in dist/, by BUILDER (podman or buildah); also as an archive in dist/.
BUILDER ?= podman
IMAGE ?= example.com/dralloc:$(VERSION)
VERSION = $(shell $(BIN)/python -c 'import dralloc; print(dralloc.__version__)')
image: setup
	ls dist/dralloc-*.whl >/dev/null 2>&1 || $(BIN)/python -m scripts.build_dist --platform
	$(BUILDER) build --file deploy/Containerfile --tag $(IMAGE) .
	$(BUILDER) push --quiet $(IMAGE) oci-archive:dist/dralloc-$(VERSION)-image.tar:$(IMAGE)
	$(BIN)/python -m scripts.build_dist --only-checksums

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
