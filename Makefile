# Everything that people and CI run. `make env` makes the environment; the others make it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
RELEASED := protos/released.binpb
UV = $$(command -v uv || echo $(BIN)/uv)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: env run test test-long bench check generate released lock format clean

env: $(STAMP)

# uv comes from the machine where it has one, else it is installed into the environment. It reads none of pip's
# settings and brings its own list of certificates: where it cannot reach the index, pip installs the same hashes.
$(STAMP): requirements/dev.txt requirements/uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tutelage needs Python 3.11 or newer: make PYTHON=python3.11 …") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || echo "Making the environment in $(VENV), this once. It takes a moment."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@command -v uv >/dev/null || test -x $(BIN)/uv || $(PIP) install --require-hashes --no-deps -r requirements/uv.txt
	@UV_SYSTEM_CERTS=true $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt || \
	  { echo "uv cannot install, so pip does"; $(PIP) install --require-hashes --no-deps -r requirements/dev.txt; }
	@$(PIP) install --no-index --no-deps --no-build-isolation --editable .
	@touch $@

# The nursery story. YES=1 answers for a run without a terminal; MODEL=anthropic:… tells it on a model of one's own.
run: $(STAMP)
	@$(BIN)/python clients/python/examples/nursery/story.py $(if $(YES),--yes) $(if $(MODEL),--model $(MODEL))

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

# Every boundary, every order, and many more rounds of kills and races than `make test` has time for.
test-long: $(STAMP)
	TUTELAGE_ROUNDS=$(or $(ROUNDS),8) $(BIN)/python -m pytest tests/recovery --timeout=1200

# All benchmarks, or one: make bench ONLY=long_turns
bench: $(STAMP)
	@$(BIN)/python -m benchmarks $(ONLY)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf breaking --against $(RELEASED)
	$(BIN)/python protos/generate.py --check
	$(BIN)/python docs/generate.py --check
	$(BIN)/python requirements/check.py

# The Python stubs under clients/python/tutelage, and the tables in docs/.
generate: $(STAMP)
	$(BIN)/python protos/generate.py
	$(BIN)/python docs/generate.py

# At a release alone: from here on `make check` holds the contract to what it is now.
released: $(STAMP)
	$(BIN)/buf build --exclude-source-info -o $(RELEASED)

# Pins every dependency by hash, what is pinned stays where it may. Names no package index.
lock: $(STAMP)
	@export UV_SYSTEM_CERTS=true; \
	  C="$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links"; \
	  $$C pyproject.toml -o requirements/runtime.txt && $$C pyproject.toml --group dev -o requirements/dev.txt && \
	  echo uv | $$C - -o requirements/uv.txt

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
