# make demo         three consumers of one topic in S3, without and with the cache
# make cluster      the same on a cluster of three executors, with homes and without
# make test         all checks: lint, types, import contracts, tests
# make docs         the documentation in site/, from docs/ and the code
# make gateway      the S3 server of some tests in .venv, built with Go
# make venv         the environment in .venv, with the versions in constraints.txt
#
# make test-spark SPARK=4.0   the Spark tests on another Spark: 4.0, 4.1, 4.2 or 4.3
# make audit                  known vulnerabilities of the dependencies, with pip-audit
# make test-lowest            all tests on the lowest versions that pyproject.toml declares
# make test-newest            all tests on the newest versions, regardless of constraints.txt
# make test-package           build, install and test the source distribution and the wheel
# make test-long              all tests that take minutes, including those of test-package;
#                             then audit
# make constraints            update constraints.txt to the newest versions

SHELL := /bin/sh
# The first suitable Python. Set PYTHON=... to use another one.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c $(WILL_DO) 2>/dev/null && { echo $$python; break; }; done)
WILL_DO := 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := -m pytest -m "not long" -n 4 --dist loadfile --no-loadscope-reorder
EXTRAS := avro,delta,demo,encryption,protobuf
comma := ,

.PHONY: venv demo cluster test gateway lint docs test-spark test-lowest test-newest test-package test-long audit constraints clean python java
venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt | python
	$(PYTHON) -m venv .venv
	$(call install,.venv,constraints.txt,$(EXTRAS),--group spark)
	touch $@

# Install pip, then the checkout with its dependencies into an environment. A file of
# constraints applies, also to builds. The jar is not built here: see sparkcache/jvm/jar.py.
define install
$(1)/bin/python -m pip install --quiet --constraint $(2) --upgrade pip
HATCH_BUILD_NO_HOOKS=true $(1)/bin/python -m pip install --quiet \
	--constraint $(2) --build-constraint $(2) --editable '.[$(3)]' --group checkout $(4)
endef

# An S3 server that checks signatures. Without Go, the tests that need it are skipped.
GATEWAY := github.com/versity/versitygw/cmd/versitygw@v1.8.0
GO := $(shell command -v go)
gateway: $(if $(GO),$(BIN)/versitygw)
	@test -n "$(GO)" || echo "make: no Go: tests with a real S3 server need Go 1.25" >&2

$(BIN)/versitygw: | $(STAMP)
	GOBIN=$(CURDIR)/$(BIN) GOFLAGS=-modcacherw $(GO) install $(GATEWAY) || \
	echo "make: $(@F) is not built: the tests that need it are skipped" >&2

demo: venv java
	$(BIN)/python examples/demo.py

cluster: venv java
	$(BIN)/python examples/cluster.py

# Unit tests come last: they fill the time in which applications start. Twice as many
# processes as the usual two cores, since the other tests mostly wait. The lint before
# them leaves a core to the classes.
test: java gateway
	$(MAKE) --jobs=2 lint $(CLASSES)
	$(BIN)/python $(PYTEST)

# Classes of Spark as JVMs map them: each of about 40 in the tests takes 6 s less.
CLASSES := .venv/spark-home/classes.jsa
$(CLASSES): $(STAMP) | java
	$(call archive,.venv)

# Archive the classes for the tests with an environment.
define archive
$(1)/bin/python -m tests.spark_home $(1)/spark-home || \
	echo "make: no archive of Spark's classes: the tests take longer" >&2
endef

test-long: venv java gateway
	$(BIN)/python -m pytest -m long
	$(BIN)/python $(PYTEST) --python-reader tests/spark
	$(MAKE) audit

# What the database does not know is an error, too: it was not looked up.
audit: python
	$(PYTHON) -m venv --clear .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

test-package: venv java
	$(BIN)/python -m pytest tests/integration/test_package.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A warning is an error, unless --quiet hides it. What the pages show of the code is
# imported from the checkout.
docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Each target creates a new environment for itself.
SPARK ?= 4.2
test-spark: other := .venv-spark-$(SPARK)
test-spark: python java
	$(PYTHON) -m venv --clear $(other)
	grep -vE '^(pyspark|py4j|delta-spark)==' constraints.txt > $(other)/constraints.txt
	echo 'pyspark==$(SPARK).*' >> $(other)/constraints.txt
	$(call install,$(other),$(other)/constraints.txt,$(EXTRAS)$(if $(filter 4.0,$(SPARK)),,$(comma)pipelines))
	$(call archive,$(other))
	$(other)/bin/python $(PYTEST) tests/spark tests/examples tests/integration tests/unit/source

test-lowest test-newest: resolution = $(patsubst test-lowest,lowest-direct,$(patsubst test-newest,highest,$@))
test-lowest test-newest: other = .venv-$(@:test-%=%)
test-newest: EXTRAS := $(EXTRAS),pipelines
test-lowest test-newest: venv java
	$(PYTHON) -m venv --clear $(other)
	$(call resolve,$(other)/constraints.txt,--resolution $(resolution) --group checkout)
	$(call install,$(other),$(other)/constraints.txt,$(EXTRAS))
	$(call archive,$(other))
	$(other)/bin/python $(PYTEST)

define resolve
$(BIN)/uv pip compile pyproject.toml --quiet --universal --upgrade \
	$(addprefix --extra ,$(subst $(comma), ,$(EXTRAS))) $(2) \
	--no-annotate --no-header --no-emit-index-url --output-file $(1)
endef

# Covers all dependencies of a checkout, for all Python versions, including uv itself.
constraints: python
	test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet uv; }
	$(call resolve,constraints.txt,--python-version 3.11 --group checkout --group spark)

python:
	@test -n "$(PYTHON)" || { \
	echo "make: no suitable Python: install Python 3.11, 3.12 or 3.13 with its venv module" \
	"(Debian: python3 python3-venv), or set PYTHON=/path/to/python3" >&2; exit 1; }

java:
	@$(JAVA) -version >/dev/null 2>&1 || { \
	echo "make: no Java: install a JDK 17 or 21 (Debian: openjdk-17-jdk-headless)," \
	"or set JAVA_HOME" >&2; exit 1; }

clean:
	rm -rf site .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
