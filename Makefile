# Everything runs in a virtual environment of its own, .venv, which is made on first use.
PYTHON ?= python3
BIN := .venv/bin
# One process more than there are cores: many a test waits for another process.
JOBS := $(shell expr $$(nproc) + 1)
# An idle process takes tests from a busy one, because some tests take a hundred times as long as others.
PARALLEL = --dist worksteal -n $(JOBS)
PYTEST := $(BIN)/python -m pytest
# All but tests/unit, which `make coverage` runs whole. What takes longest begins first.
FOLDERS := tests/process tests/old_runs tests/tensorflow
# The oldest pair has an environment of its own. What differs between versions of TensorFlow is tried there: its
# internals, checkpoints, the position in the data, and each way to train.
OLDEST_PYTHON ?= python3.11
OLDEST := $(addprefix tests/tensorflow/test_,internals.py bundle.py hidden.py state_readers.py sessions.py shuffles.py \
  steps.py keras_fit.py kerasjob.py supervisor.py event_writer.py)
# Keras 3.12 has no MultiOptimizer, so this test is left out there.
OLDEST += --deselect tests/tensorflow/test_hidden.py::test_the_slots_of_an_optimizer_of_several_are_saved

.PHONY: help run test test-oldest test-long test-all coverage torture lint types docs cluster-test systemd-test dist dist-test bench bench-short clean

help:
	@echo "make run           train the digits job here; Ctrl-C saves, make run again resumes"
	@echo "make test          the tests"
	@echo "make test-oldest   a part of them with the oldest Python and TensorFlow, in .venv-oldest; needs python3.11"
	@echo "make test-all      those, and the ones that take longer (make test-long): three times that"
	@echo "make coverage      the unit tests, and how much of the core they reach, which has a floor"
	@echo "make torture       the faults of docs/reliability.md, many of each: several hours, as root"
	@echo "make lint types    ruff, the words that our texts avoid, and mypy"
	@echo "make docs          the documentation as a site, in site/; every link of it is checked"
	@echo "make cluster-test  several workers on this machine, and a real Slurm; needs root and Slurm's packages"
	@echo "make systemd-test  tests that boot a real systemd; needs root and systemd-container"
	@echo "make dist          the wheel and the sdist, in dist/"
	@echo "make dist-test     installs them in bare systems, and builds an image; needs root, debootstrap and buildah"
	@echo "make bench         measure what is claimed, beside its peers"

.venv/.run: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "trainerd needs Python 3.11 to 3.13; set PYTHON=")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[watch]'
	@touch $@

.venv/.test: .venv/.run
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

.venv/.bench: .venv/.run
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

.venv/.docs: .venv/.run
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

.venv/.dist: .venv/.run
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dist]'
	@touch $@

.venv-oldest/.test: setup.cfg pyproject.toml packaging/oldest.txt
	@test -x .venv-oldest/bin/python || $(OLDEST_PYTHON) -m venv .venv-oldest
	@echo "Installing into .venv-oldest (a minute or two, once)"
	@.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint packaging/oldest.txt -e '.[test]'
	@touch $@

run: .venv/.run
	@$(BIN)/trainerd run

test: coverage
	$(PYTEST) $(PARALLEL) -m "not long" $(FOLDERS)

test-oldest: .venv-oldest/.test
	.venv-oldest/bin/python -m pytest $(PARALLEL) -m "not long" $(OLDEST)

test-long: .venv/.test
	$(PYTEST) $(PARALLEL) -m long tests/torture $(FOLDERS)

test-all: coverage
	$(PYTEST) $(PARALLEL) tests/torture $(FOLDERS)

coverage: .venv/.test
	$(PYTEST) -q $(PARALLEL) tests/unit --cov --cov-report=term:skip-covered

torture: .venv/.test
	TORTURE=long $(PYTEST) tests/torture tests/cluster/test_soak.py tests/systemd/test_agent.py

cluster-test: .venv/.test
	$(PYTEST) --dist worksteal -n 2 tests/cluster

systemd-test: .venv/.test
	$(PYTEST) tests/systemd

dist: .venv/.dist
	rm -rf dist
	$(BIN)/python -m build > .venv/build.log 2>&1 || { cat .venv/build.log; exit 1; }
	$(BIN)/twine check --strict dist/*

# In Debian 13. SUITE="bookworm noble" tries two other systems, which are made at the same time; the image is built upon the first.
dist-test: .venv/.test dist
	$(PYTEST) tests/packaging

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.words

types: .venv/.test .venv/.bench .venv/.docs  # the benchmarks draw with matplotlib
	$(BIN)/mypy

docs: .venv/.docs
	$(BIN)/python -m tools.site

bench: .venv/.bench
	$(BIN)/python -m benchmarks

bench-short: .venv/.bench
	$(BIN)/python -m benchmarks --short

clean:
	rm -rf .venv .venv-oldest build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
