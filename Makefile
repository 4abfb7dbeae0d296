# The same commands for a person and for CI; `make help` lists them.
# A machine with Python 3.11 or 3.12 and make is enough: everything else goes into .venv.

UV_VERSION := 0.13.8
HATCHLING_VERSION := 1.33.0

VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(VENV)/tools
UV := $(TOOLS)/bin/uv
PIP := $(TOOLS)/bin/python -m pip --python $(BIN)/python
STAMP := $(VENV)/set-up

.DEFAULT_GOAL := help
.PHONY: help setup dev test check format bench faults lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## put the environment into .venv; nothing to do when it is up to date

dev: setup ## start the product and keep it running until Ctrl-C
	@$(BIN)/cerniq dev

test: setup ## run the tests
	$(BIN)/pytest -n 2 --dist loadgroup

check: setup ## lint, format, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: setup ## bring the code into the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure how fast leads are planned and events are kept
	$(BIN)/cerniq bench dispatch --leads 20000
	$(BIN)/cerniq bench ingest

# `make faults ROWS=15-19 REPEATS=20 SEED=7` narrows, repeats and plays again; docs/faults.md.
faults: setup ## break servers, processes and clocks at random moments; the journal judges
	@$(BIN)/python -m cerniq_pipeline_tests.faults.matrix $(if $(ROWS),--rows $(ROWS)) \
	  $(if $(REPEATS),--repeats $(REPEATS)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(SENDS),--sends $(SENDS)) $(if $(BRIEF),--brief)

# A compiled list and not a uv.lock, which would write the address of a package registry into the
# project.
lock: setup ## pin every dependency anew, with hashes
	$(UV) pip compile pyproject.toml --group dev --universal --generate-hashes --no-header \
	  --no-emit-index-url --python-version 3.11 -o requirements.lock

clean: ## remove the environment and the caches; the data in .cerniq stays
	@if [ -x $(BIN)/cerniq ]; then $(BIN)/cerniq services down; fi
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every name on the PATH is tried by running it: pyenv leaves commands there that only print an
# error, and Debian's Python cannot make environments unless python3-venv is installed.
define FIND_PYTHON
suits() {
  "$$1" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
    >/dev/null 2>&1
}
if [ -n "$$PYTHON" ]; then
  suits "$$PYTHON" && echo "$$PYTHON" && exit 0
  echo "PYTHON=$$PYTHON is not a working Python 3.11 or 3.12 with venv." >&2
  exit 1
fi
IFS=:
for name in python3.12 python3.11 python3 python; do
  for folder in $$PATH; do
    [ -x "$$folder/$$name" ] && suits "$$folder/$$name" && echo "$$folder/$$name" && exit 0
  done
done
for found in "$$HOME"/.pyenv/versions/3.12.*/bin/python "$$HOME"/.pyenv/versions/3.11.*/bin/python; do
  [ -x "$$found" ] && suits "$$found" && echo "$$found" && exit 0
done
echo "Cerniq needs Python 3.11 or 3.12, with venv, and found none." >&2
echo "Install one (on Debian and Ubuntu: python3 and python3-venv), or say where it is:" >&2
echo "  make setup PYTHON=/path/to/python3.12" >&2
exit 1
endef
export FIND_PYTHON
export PYTHON

# uv has an environment of its own, because it makes .venv exactly what the list says and would
# remove itself. Where only pip knows the way to an index, pip installs the same list.
$(STAMP): requirements.lock pyproject.toml
	@set -e; \
	python=$$(sh -c "$$FIND_PYTHON"); \
	version() { "$$1" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null || true; }; \
	echo "setting up $(VENV) with Python $$(version "$$python") ..."; \
	if [ "$$(version $(BIN)/python)" != "$$(version "$$python")" ]; then \
	  "$$python" -m venv --clear --without-pip $(VENV); \
	fi; \
	if [ "$$($(UV) self version --short 2>/dev/null)" != $(UV_VERSION) ]; then \
	  "$$python" -m venv --clear $(TOOLS); \
	  $(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); \
	fi; \
	echo hatchling==$(HATCHLING_VERSION) > $(VENV)/build-constraints.txt; \
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock \
	  || $(PIP) install --quiet --no-deps --require-hashes -r requirements.lock; \
	$(UV) pip install --quiet --python $(BIN)/python --no-deps \
	    --build-constraints $(VENV)/build-constraints.txt --editable . \
	  || PIP_CONSTRAINT=$(VENV)/build-constraints.txt $(PIP) install --quiet --no-deps --editable .; \
	touch $(STAMP)
