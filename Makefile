# Every target makes its own environment: nothing has to be installed first but Python 3.10 or newer.
SHELL  := /bin/bash
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   := fixtures/input-bound-single-process/torch
# Nsight Systems from scripts/install-nsys, where it was run; else the one on PATH, if any.
NSYS   := $(wildcard $(CURDIR)/.cache/nsys/bin/nsys)
export PERFDOCTOR_NSYS ?= $(NSYS)

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

# What users install, and all that a demo needs.
$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# What the tests and the other targets need: versions and hashes of `make lock`. `make test LOCK=` takes the newest ones.
LOCK   ?= requirements/dev.txt
# The newest are asked for by group, which pip knows since 25.1.
NEWEST := $(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" && $(BIN)/python -m pip install --quiet --upgrade --editable .
LOCKED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement

$(BIN)/.made: $(BIN)/.installed $(LOCK)
	$(if $(LOCK),$(LOCKED) $(LOCK),$(NEWEST) --group dev)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Settled for every Python and system at once; no index is named, so that each machine uses its own.
RESOLVE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet --upgrade

lock: $(BIN)/.made  ## settle the versions of the development environment anew: writes requirements/
	mkdir -p requirements
	$(RESOLVE) --group dev --output-file requirements/dev.txt
	$(RESOLVE) --group night --output-file requirements/night.txt

demo: $(BIN)/.installed  ## diagnose a recording that comes with the project, and write its report
	$(BIN)/perfdoctor analyze $(DEMO) --html perfdoctor-demo.html

# A run starts Python hundreds of times: what it compiles is kept, whatever the environment says.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --dist loadgroup --no-loadscope-reorder

test: $(BIN)/.made  ## run the tests: one case of each kind of those that take long
	$(PYTEST)

MARKED ?= recordings and not thorough

test-recordings: $(BIN)/.made  ## run the tests of public recordings alone: PERFDOCTOR_RECORDINGS names their folder
	$(PYTEST) -m "$(MARKED)"

test-all: $(BIN)/.made  ## run all tests, and look for counterexamples for longer: what CI does each night
	$(if $(LOCK),$(LOCKED) requirements/night.txt,$(NEWEST) --group night)
	$(PYTEST) -m "" --hypothesis-profile thorough

coverage: $(BIN)/.made  ## which statements and branches do the tests reach, and is it enough: what CI asks each night
	$(BIN)/python scripts/covered.py

lint: $(BIN)/.made  ## ruff, mypy --strict, import contracts, docstrings of the public API
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/public_docstrings.py

truth: $(BIN)/.made  ## every labelled recording: what is first, and is it right
	$(BIN)/python benchmarks/truth.py

assistant: $(BIN)/.made  ## questions about recordings, answered from the texts of `perfdoctor mcp` alone
	$(BIN)/python benchmarks/assistant.py

fuzz: $(BIN)/.made  ## changed files of every reader, and of our own; FUZZ="--inputs 5000 --only kineto" tries more of one
	$(BIN)/python benchmarks/fuzz.py $(FUZZ)

faults: $(BIN)/.made  ## runs of `perfdoctor run` with a fault in each; FAULTS="--runs 1000" for an hour or two
	$(BIN)/python benchmarks/faulty_runs.py $(FAULTS)

invariance: $(BIN)/.made  ## the same training recorded otherwise: is the answer the same; INVARIANCE="--only 'wild/*'" tries some
	$(BIN)/python benchmarks/invariance.py $(INVARIANCE)

accuracy: $(BIN)/.made  ## planted faults, found or not: writes docs/accuracy.md
	$(BIN)/python benchmarks/accuracy.py

bench: $(BIN)/.made  ## how fast, against peers and the floor, in ten minutes: writes docs/performance.md; BENCH=--quick tries it
	$(BIN)/python benchmarks/bench.py $(BENCH)

instructions: $(BIN)/.made  ## is a diagnosis as cheap as it was: instructions under valgrind; RENEW=--renew keeps new ones
	$(BIN)/python benchmarks/instructions.py $(RENEW)

promises: $(BIN)/.made  ## predicted savings of the examples on this processor, against their fixed versions
	$(BIN)/python benchmarks/promises.py --rounds $(or $(ROUNDS),5) $(EXAMPLES)

programs: $(BIN)/.made  ## steps, verdicts and promises of programs with real packages, against the programs themselves
	$(BIN)/python benchmarks/run_programs.py --rounds $(or $(ROUNDS),3) $(PROGRAMS)

busy-machine: $(BIN)/.made  ## is a machine called busy where it is, and nowhere else; BUSY="--runs 200" on a free machine
	$(BIN)/python benchmarks/busy_machine.py $(BUSY)

pairs: $(BIN)/.made  ## programs before and after a change, recorded and measured on this processor; nothing else should run
	$(BIN)/python benchmarks/make_pairs.py --minutes $(or $(MINUTES),15) $(RECORDINGS)

calibration: $(BIN)/.made  ## how wide ranges of savings are, from all measured pairs: writes docs/savings.md
	$(BIN)/python benchmarks/calibrate.py
	$(BIN)/python scripts/generate_docs.py

gpu-bundle: $(BIN)/.made  ## one file that tries perfdoctor on a machine without a network: dist/
	PYTHON=$(BIN)/python scripts/gpu-bundle $(foreach version,$(PYTHONS),--python $(version))

gpu-results: $(BIN)/.made  ## FOLDER=what it left there: fixtures, and a section of docs/machines.md
	$(BIN)/python scripts/gpu_results.py $(FOLDER)

docs: $(BIN)/.made  ## write the generated parts of README.md
	$(BIN)/python scripts/generate_docs.py

site: $(BIN)/.made  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pictures: $(BIN)/.made  ## take the pictures of docs/ anew
	$(BIN)/python scripts/take_pictures.py

wheel: $(BIN)/.made  ## build the wheel and the source archive
	$(BIN)/python -m build --no-isolation

audit: $(BIN)/.made  ## is a vulnerability known in what is installed?
	$(BIN)/python scripts/audit.py

clean:  ## remove what the targets above made
	rm -rf $(VENV) dist site perfdoctor-demo.html .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help demo test test-recordings test-all coverage lock audit lint truth assistant fuzz faults invariance accuracy promises programs busy-machine pairs calibration gpu-bundle gpu-results bench instructions docs site pictures wheel clean
.DEFAULT_GOAL := help
