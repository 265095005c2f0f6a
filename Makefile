# Everything that a developer runs. `make` alone lists it.
#
# Each target prepares the checkout first (scripts/setup), which is quick when there is nothing to do.

.DEFAULT_GOAL := help
.PHONY: help setup test demo lint style format bench tpch faults fuzz simulate figures docs house dist lock clean

PYTHON_RUN := .venv/bin/python -m

# Where the environment forbids Python to write bytecode, every process of every run compiles again
# what it imports, and pytest all its test modules.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## install uv, the locked environment, Java, database servers and a browser, where they are missing
	@scripts/setup

# Tests run in two processes, each with one Spark session. What shares fixtures goes to one of them
# (tests/conftest.py); the many tests without any come last, so that neither waits for the other.
# Types are checked beside them: mypy has one core, and the other would wait for it.
PROCESSES ?= 2

test: style ## check style and types, and run all tests but the campaigns; PROCESSES=3 for more at once
	@$(PYTHON_RUN) mypy & types=$$!; \
	$(PYTHON_RUN) pytest -m 'not campaign' -n $(PROCESSES) --dist loadgroup $(ARGS); tests=$$?; \
	wait $$types || { echo "mypy found errors, which are above"; exit 1; }; exit $$tests

demo: setup ## run the demonstration; ARGS="..." are passed on
	.venv/bin/viewkeeper demo $(ARGS)

lint: style ## check style and types only
	$(PYTHON_RUN) mypy

style: setup
	$(PYTHON_RUN) ruff check
	$(PYTHON_RUN) ruff format --check

format: setup ## rewrite the source to the house style
	$(PYTHON_RUN) ruff check --fix
	$(PYTHON_RUN) ruff format

bench: setup ## measure; the figures go to benchmarks/out; ONLY="peers batches" for some sections
	$(PYTHON_RUN) benchmarks.run $(if $(ONLY),--sections $(ONLY)) $(ARGS)

tpch: setup ## keep the 22 queries of TPC-H over three kinds of databases, and judge every one of them
	$(PYTHON_RUN) tests.tpch.run $(ARGS)

faults: ## kill, cut, freeze and refuse again and again, and check what is left; ARGS="-k power" for some
	@scripts/setup faults
	$(PYTHON_RUN) pytest -m campaign -rs $(or $(filter tests/%,$(ARGS)),tests) $(filter-out tests/%,$(ARGS))

fuzz: setup ## damage what every reader of foreign bytes reads, 100,000 times each; 10,000 random queries; 2,000 random graphs; all of the matrix
	VIEWKEEPER_FUZZ_INPUTS=$${VIEWKEEPER_FUZZ_INPUTS:-100000} VIEWKEEPER_FUZZ_SEED=$${VIEWKEEPER_FUZZ_SEED:-$$$$} \
		$(PYTHON_RUN) pytest -n 2 --dist worksteal tests/fuzz $(ARGS) || [ $$? -eq 5 ]
	VIEWKEEPER_FUZZ_QUERIES=$${VIEWKEEPER_FUZZ_QUERIES:-10000} VIEWKEEPER_FUZZ_SEED=$${VIEWKEEPER_FUZZ_SEED:-$$$$} \
		$(PYTHON_RUN) pytest -n 2 tests/sql/test_random_queries.py $(ARGS) || [ $$? -eq 5 ]
	VIEWKEEPER_FUZZ_GRAPHS=$${VIEWKEEPER_FUZZ_GRAPHS:-2000} VIEWKEEPER_FUZZ_SEED=$${VIEWKEEPER_FUZZ_SEED:-$$$$} \
		$(PYTHON_RUN) pytest -n 2 tests/sql/test_random_graphs.py $(ARGS) || [ $$? -eq 5 ]
	VIEWKEEPER_MATRIX_STATES=1 $(PYTHON_RUN) pytest tests/sql/test_matrix.py $(ARGS) || [ $$? -eq 5 ]

simulate: setup ## try every algorithm in 2,000 random worlds each, Dyno in as many, and fleets; write the tables
	.venv/bin/viewkeeper simulate --table --seeds 2000 --into README.md --into docs/algorithms.md $(ARGS)
	.venv/bin/viewkeeper simulate --schema-changes all --seeds 2000 --into docs/dyno.md $(ARGS)
	.venv/bin/viewkeeper simulate --fleet --seeds 2000 $(ARGS)
	.venv/bin/viewkeeper simulate --fleet --without-order --seeds 2000 $(ARGS)

figures: setup ## draw the sequence diagrams of docs/figures
	.venv/bin/viewkeeper simulate tests/specs/sweep-figure-5.txt --run 2 --diagram docs/figures/sweep-figure-5.svg
	.venv/bin/viewkeeper simulate tests/specs/strobe-example-3.txt --run 1 --diagram docs/figures/strobe-example-3.svg

docs: setup ## build the documentation site into build/site; a broken link is an error
	$(PYTHON_RUN) mkdocs build
	@echo "docs: open build/site/index.html"

house: setup ## count names, classes, folders, lengths and the road of a change
	.venv/bin/python scripts/house_figures.py $(ARGS)

dist: setup ## build the wheel and the source distribution into dist
	$(PYTHON_RUN) hatchling build -d dist

lock: setup ## resolve requirements.lock again from pyproject.toml, and the uv of scripts/setup
	.tools/uv pip compile pyproject.toml --all-extras --group dev --generate-hashes --no-emit-index-url \
		--no-header --python-version 3.11 --universal -q -o requirements.lock
	echo uv | .tools/uv pip compile - --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
		--python-version 3.11 --universal -q -o scripts/uv-requirements.txt

clean: ## remove all that make has made here, .venv and .tools included
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	rm -rf spark-warehouse metastore_db derby.log benchmarks/out
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
