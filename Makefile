# Perennial. `make help` lists the targets; `make demo` and `make test` are all that a new machine needs.
SHELL := /bin/bash
PYTHON := .venv/bin/python
STATE := $(or $(PERENNIAL_STATE),var)
export PYTHONDONTWRITEBYTECODE :=
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup demo up down mlflow test check format lock clean docs

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: ## install what is missing: .venv, .venv-triton, Java
	@.ci/setup

demo: setup ## run the loop on real flights, from raw records to a retrain that drift asked for
	@$(PYTHON) -m operators.demo

up: setup ## start Airflow, Triton and the gateway in the background
	@$(PYTHON) -m operators.up

down: ## stop them and every process they started
	@if [ -x $(PYTHON) ]; then $(PYTHON) -m operators.stack --stop "$(STATE)/stack.pid"; fi

mlflow: setup ## look at the MLflow runs in a browser, until Ctrl-C (`make up` or `make demo` first)
	@$(PYTHON) -m operators.mlflow_ui

test: setup ## run every test that this machine can run
	@.ci/test-servers
	@$(PYTHON) -m pytest

check: setup ## format, lint, types, import contracts, unit and DAG tests
	@ruff format --check .
	@ruff check .
	@mypy
	@lint-imports
	@$(PYTHON) -m pytest -q tests/unit tests/dags tests/docs

format: setup ## format the code and mend what the linter can
	@ruff format . && ruff check --fix .

docs: setup ## write the pages that are generated: docs/dags.md, docs/settings.md, docs/features.md
	@$(PYTHON) -m operators.pages

lock: ## resolve the versions anew
	@export UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}"; \
	uv pip compile --quiet pyproject.toml --all-extras --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	  --no-emit-package torch --no-annotate --no-header --generate-hashes --no-emit-index-url --no-emit-find-links -o locks/perennial.txt; \
	uv pip compile --quiet locks/triton.in --python-version 3.11 --python-platform x86_64-manylinux_2_35 \
	  --no-annotate --no-header --generate-hashes --no-emit-index-url -o locks/triton.txt

clean: down ## remove all state (var/, or PERENNIAL_STATE), not the environments
	@rm -rf "$(STATE)"
