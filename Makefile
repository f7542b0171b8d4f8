# make venv   the environment in .venv
# make test   all checks
# make demo   the main job: a topic in S3, three planned consumers

PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest -m "not long"

.PHONY: venv test demo lint clean
venv: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1' 'hatchling>=1.27'
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[demo,delta]' --group dev
	touch $@

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Unit tests last: they fill the time in which applications start. One more at once than
# there are cores, since much of the rest waits.
test: lint
	$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder

demo: venv
	$(BIN)/python examples/demo.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
