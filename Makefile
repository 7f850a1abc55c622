# `make demo` and `make test` set themselves up from nothing: Python 3.11, pip and make are all they need.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint docs clean

demo: .venv/demo
	rm -rf runs/demo
	$(BIN)/longwave train --out runs/demo
	@echo
	$(BIN)/longwave generate runs/demo "def main(" --temperature 0.7 --seed 1

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

docs: .venv/docs
	$(BIN)/python docs/build.py --table

clean:
	rm -rf .venv runs site build

.venv/python: constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) torch==$$(sed -n 's/^torch==//p' constraints.txt)
	touch $@

.venv/demo: .venv/python pyproject.toml
	$(INSTALL) --editable '.[cli]'
	touch $@

.venv/test: .venv/python pyproject.toml
	$(INSTALL) --editable '.[test]'
	touch $@

.venv/docs: .venv/test
	$(INSTALL) --editable '.[docs]'
	touch $@
