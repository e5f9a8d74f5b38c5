# Everything that people and CI run. `make env` makes the environment; the others make it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
CODE := runtime_service service_kit clients/python tests
PROTOS := $(shell find protos -name '*.proto' | sort)

.PHONY: env run test check generate lock format clean

env: $(STAMP)

# uv comes from the machine where it has one, else it is installed into the environment.
$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tutelage needs Python 3.11 or newer: make PYTHON=python3.11 …") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@command -v uv >/dev/null || test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/uv.txt
	@UV=$$(command -v uv || echo $(BIN)/uv); \
	  $$UV pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt && \
	  $$UV pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# The first half of the nursery story. YES=1 answers for a run without a terminal.
run: $(STAMP)
	@$(BIN)/python clients/python/examples/nursery/story.py $(if $(YES),--yes)

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PATH=$(BIN):$$PATH buf lint
	$(BIN)/python protos/generate.py --check

# The Python stubs under clients/python/tutelage.
generate: $(STAMP)
	$(BIN)/python protos/generate.py

# Pins every dependency by hash. Names no package index.
lock: $(STAMP)
	@UV=$$(command -v uv || echo $(BIN)/uv); \
	  C="$$UV pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate"; \
	  $$C pyproject.toml -o requirements/runtime.txt && $$C pyproject.toml --group dev -o requirements/dev.txt && \
	  echo uv | $$C - -o requirements/uv.txt

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
