# Corvus: `make run` starts it, `make test` tests it. Both need nothing but Python 3.11 or newer.

PYTHON_ENV := .venv/bin
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install run test e2e lint bench soak clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' Makefile | expand -t 12

install: ## make the virtual environment from the lock file
	@sh scripts/setup-python.sh

run: install ## start Corvus (settings: CORVUS_… in the environment, or FLAGS="--capacity 50")
	@exec $(PYTHON_ENV)/python manage.py up $(FLAGS)

# Each test owns its store, ports and folders, so that they run side by side. What drives a browser or
# starts the whole product stays with one worker (tests/conftest.py).
test: install ## run every test (TESTS=tests/site for a part)
	@sh scripts/install-test-packages.sh
	@$(PYTHON_ENV)/python -m pytest -q -n $(WORKERS) $(TESTS)

e2e: install ## run the tests that start the whole product
	@sh scripts/install-test-packages.sh
	@$(PYTHON_ENV)/python -m pytest -q tests/e2e

lint: install ## check style, types, walls between the parts, templates, migrations
	$(PYTHON_ENV)/ruff check .
	$(PYTHON_ENV)/ruff format --check .
	$(PYTHON_ENV)/mypy .
	PYTHONPATH=. $(PYTHON_ENV)/lint-imports
	find templates portal -name '*.html' -print0 | xargs -0 -r $(PYTHON_ENV)/djade --check --target-version 5.2
	CORVUS_DATA_DIR=.venv/lint-data $(PYTHON_ENV)/python manage.py makemigrations --check --dry-run
	CORVUS_DATA_DIR=.venv/lint-data $(PYTHON_ENV)/python manage.py check --deploy --fail-level WARNING
	@rm -rf .venv/lint-data

bench: install ## measure, and print one table
	@sh scripts/install-test-packages.sh bench
	@$(PYTHON_ENV)/python -m benchmarks

soak: install ## drive the room's script with a million random operations
	@$(PYTHON_ENV)/python -m tests.properties.room_soak $(FLAGS)

clean: ## remove the virtual environment and caches; the data folder stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
