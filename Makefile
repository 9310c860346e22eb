# Every target does its own set-up: a fresh clone and a Python >= 3.12 somewhere are enough.
.PHONY: help setup test lint demo bench constraints clean
PYTHON := .venv/bin/python

help:
	@echo "make test    run the tests            (make test ARGS='-k grid -x')"
	@echo "make lint    ruff, mypy, import contracts"
	@echo "make demo    the demonstration on real data"
	@echo "make bench   the benchmarks, beside their peers (make bench ARGS='--only scan --json out.json')"
	@echo "make setup   only build .venv"
	@echo "make constraints   renew constraints.txt"
	@echo "make clean   remove .venv, caches and the demo's output"

setup:
	@bash tools/setup.sh test,lint

test: setup
	@$(PYTHON) -m pytest $(ARGS)

lint: setup
	@bash tools/lint.sh

demo:
	@bash tools/setup.sh test,lint
	@$(PYTHON) demo/demo.py $(ARGS)

bench:
	@bash tools/setup.sh bench,lint
	@$(PYTHON) benchmarks/run.py $(ARGS)

constraints:
	@bash tools/make_constraints.sh

clean:
	rm -rf .venv demo/output benchmarks/work .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
