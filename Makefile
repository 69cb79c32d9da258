# Every target sets up what it needs on a fresh Debian machine, and does nothing twice.
# A stamp file lies inside the folder it vouches for, so removing one removes both.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP_FLAGS := --quiet --disable-pip-version-check --constraint constraints.txt

# Older official clients, each in an environment of its own for the smoke tests.
SDK_VERSIONS := 7.14.3 7.12.3
SDK_STAMPS := $(SDK_VERSIONS:%=.venvs/sdk-%/.stamp)

JS := tests/sdk/js
JS_STAMP := $(if $(wildcard $(JS)/package.json),$(JS)/node_modules/.stamp)

CASES ?= 1000000
SECONDS ?= 600

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup system test-tools peers lint format quick test drill drills fuzz
.PHONY: bench campaigns compiled sdks soak serve wheel clean

help: ## Print this help
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | \
		awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: test-tools $(VENV)/.stamp $(SDK_STAMPS) $(JS_STAMP) ## Prepare all for the tests

# $(call debian,PACKAGES): install, or say exactly what a person has to do.
define debian
	if [ "$$(id -u)" = 0 ]; then as=; \
	elif command -v sudo >/dev/null; then as=sudo; \
	else echo "Missing packages. As root, run: apt-get install$(1)" >&2; exit 1; fi; \
	command -v apt-get >/dev/null || { \
		echo "This is not Debian: please install$(1) yourself." >&2; exit 1; }; \
	echo "Installing Debian packages:$(1)"; \
	$$as apt-get update -qq && \
	$$as env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -qq --no-install-recommends$(1) >/dev/null
endef

# What the package itself needs: Python and, for Spark, Java.
system:
	@missing=; \
	command -v $(PYTHON) >/dev/null || missing="$$missing python3 python3-venv"; \
	! command -v $(PYTHON) >/dev/null || $(PYTHON) -c 'import ensurepip, venv' \
		2>/dev/null || missing="$$missing python3-venv"; \
	if [ -n "$$missing" ]; then $(call debian,$$missing); fi
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || \
		{ command -v apt-get >/dev/null && { \
		( $(call debian, openjdk-17-jre-headless) ) || \
		( $(call debian, openjdk-21-jre-headless) ); }; } || { \
		echo "Spark needs Java 17, 21 or 25: install one, or set JAVA_HOME." >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; \
		exit 1; }

# What only the tests and the bench need; Qpid Proton's library is a client that is not
# ours and needs no compiler. After `system`, since apt-get runs one at a time.
test-tools: | system
	@missing=; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	command -v faketime >/dev/null || missing="$$missing faketime"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	PATH="$$PATH:/usr/sbin" command -v haproxy >/dev/null || \
		missing="$$missing haproxy"; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		missing="$$missing postgresql"; \
	$(PYTHON) -c 'import ctypes; ctypes.CDLL("libqpid-proton.so.11")' 2>/dev/null || \
		missing="$$missing libqpid-proton11"; \
	if [ -n "$$missing" ]; then $(call debian,$$missing); fi

# RUNLEVEL=1 above asks Debian not to start a broker when it installs one; the bench runs
# its own. Artemis is in no package of Debian: Maven fetches its distribution, and
# libaio is what its journal is fastest with. Where a peer cannot be installed, the bench
# names it as missing.
ARTEMIS := apache-artemis-2.37.0
MAVEN_COPY := org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy

peers:
	@if ! PATH="$$PATH:/usr/sbin" command -v rabbitmq-server >/dev/null; then \
		( $(call debian, rabbitmq-server) ) || true; fi
	@if command -v mvn >/dev/null && [ ! -e .peers/$(ARTEMIS) ]; then \
		( $(call debian, libaio1) ) || true; \
		mkdir -p .peers && mvn --quiet --batch-mode $(MAVEN_COPY) \
			-Dartifact=org.apache.activemq:$(subst artemis-,artemis:,$(ARTEMIS)):tar.gz:bin \
			-DoutputDirectory=.peers && \
		tar --extract --directory .peers --file .peers/$(ARTEMIS)-bin.tar.gz && \
		rm .peers/$(ARTEMIS)-bin.tar.gz || echo "Artemis could not be fetched." >&2; fi

$(VENV)/.stamp: pyproject.toml constraints.txt | system
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install $(PIP_FLAGS) --editable '.[test,bench,spark,postgres]'
	@$(RUN) -m twinbus.spark.environment
	@touch $@

.venvs/sdk-%/.stamp: constraints.txt | system
	$(PYTHON) -m venv .venvs/sdk-$*
	.venvs/sdk-$*/bin/python -m pip install $(PIP_FLAGS) \
		azure-servicebus==$* aiohttp websocket-client
	@touch $@

$(JS)/node_modules/.stamp: $(JS)/package.json $(JS)/.npmrc | test-tools
	cd $(JS) && npm install --silent
	@touch $@

# The same sources with the engine as C. It is built from a copy: compiled files beside
# sources that are edited would be a trap.
dist/.stamp: pyproject.toml $(shell find src -type f -not -name '*.pyc')
	@command -v cc >/dev/null || { $(call debian, gcc libc6-dev python3-dev); }
	rm -rf dist build/wheel && mkdir -p build/wheel
	cp -R src pyproject.toml README.md LICENSE build/wheel
	$(PYTHON) -m venv build/builder
	build/builder/bin/python -m pip install $(PIP_FLAGS) hatchling hatch-mypyc mypy
	cd build/wheel && HATCH_BUILD_HOOK_ENABLE_MYPYC=true \
		../builder/bin/python -m hatchling build --target wheel >/dev/null
	mv build/wheel/dist dist
	@touch $@

wheel: dist/.stamp ## Build a wheel with the engine compiled, in dist

# The tests are in the environment of the others, which finds the wheel's files first.
# Left out is what waits for restarts, floods and other versions.
COMPILED := .venvs/compiled
COMPILED_TESTS := tests/wire tests/stories tests/server/broker tests/sdk \
	tests/cli/test_entities.py
COMPILED_LEFT_OUT := faults_javascript old_versions rotation supervised throttling

$(COMPILED)/.stamp: dist/.stamp
	rm -rf $(COMPILED)
	$(RUN) -m pip install $(PIP_FLAGS) --no-deps --target $(COMPILED) dist/*.whl
	@touch $@

compiled: setup $(COMPILED)/.stamp ## Compile the engine, and test it so
	PYTHONPATH=$(COMPILED) $(RUN) -m twinbus.cli.main --version | grep compiled
	PYTHONPATH=$(CURDIR)/$(COMPILED) $(RUN) -m pytest --numprocesses 3 --dist loadfile \
		--no-loadscope-reorder $(COMPILED_TESTS) \
		$(COMPILED_LEFT_OUT:%=--ignore=tests/sdk/test_%.py)

lint: $(VENV)/.stamp ## Check style and types: ruff, mypy strict
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(VENV)/.stamp ## Rewrite the sources in the project's format
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

# Tests that start no server.
QUICK := tests/core tests/wire tests/store tests/stories tests/pairing/rules

quick: $(VENV)/.stamp ## Test the rules, the wire and the store: under a minute
	$(RUN) -m pytest --numprocesses 2 $(QUICK)

# Most tests wait for servers: three at once keep two cores busy. The order of files is
# that of tests/conftest.py, long ones first, and those on Spark are one worker's.
test: setup lint ## Set up, lint, and run the whole test suite
	$(RUN) -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
	$(MAKE) --no-print-directory compiled

# Needs Python and Java on the machine, and no tool of the tests.
drill: $(VENV)/.stamp ## Rehearse an outage end to end (FAULT=kill|stop|sick|... SEED=...)
	@mkdir -p build
	$(RUN) -m twinbus.cli.main drill --report build/drill.html \
		$(if $(FAULT),--fault $(FAULT)) $(if $(SEED),--seed $(SEED))

drills: $(VENV)/.stamp ## Rehearse every fault with several seeds
	$(RUN) -m pytest -m campaign --timeout 0 tests/drill -rA

fuzz: setup ## Fuzz every parser (CASES=1000000)
	$(RUN) -m tests.fuzz --cases $(CASES)

bench: setup peers ## Measure beside the peers (ONLY=server for one workload)
	$(RUN) -m bench $(if $(ONLY),--only $(ONLY))

campaigns: setup ## Run the big matrices: crash points, power loss, long fuzzing
	$(RUN) -m pytest -m campaign --timeout 0
	TWINBUS_TEST_SHARDS=4 $(RUN) -m pytest --timeout 0 tests/sdk
	$(MAKE) compiled COMPILED_LEFT_OUT=

# A program of cases for each client, with a list of them beside it. The tools keep what
# they download in their own caches, outside of this folder.
build/sdks/go.json: $(wildcard tests/sdk/go/*)
	@mkdir -p $(@D)
	cd tests/sdk/go && go build -o ../../../build/sdks/go .
	build/sdks/go --list > $@

build/sdks/java.json: $(wildcard tests/sdk/java/pom.xml tests/sdk/java/src/twinbus/*)
	@mkdir -p $(@D)
	mvn --quiet --batch-mode --file tests/sdk/java/pom.xml process-classes
	java -cp 'build/sdks/java/classes:build/sdks/java/dependency/*' twinbus.Main \
		--list > $@

# $(call program,TOOL,LANGUAGE): build it, or say that its tool is missing.
define program
	@if command -v $(1) >/dev/null; then \
		$(MAKE) --no-print-directory build/sdks/$(2).json; \
	else rm -f build/sdks/$(2).json; \
		echo "$(1) is missing: the client for $(2) is not tested."; fi
endef

sdks: $(VENV)/.stamp ## Test with the official clients for Java and Go
	$(call program,go,go)
	$(call program,mvn,java)
	$(RUN) -m pytest -m sdks tests/sdk/test_go.py tests/sdk/test_java.py

soak: setup ## Break two servers under load, and check (SECONDS=600 SEED=...)
	$(RUN) -m tests.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

serve: $(VENV)/.stamp ## Run a development namespace on loopback, its data in ./data
	$(RUN) -m twinbus.cli.main serve --dev --namespace contoso --data ./data

clean: ## Remove everything that setup and the tools made; data stays
	rm -rf $(VENV) .venvs $(JS)/node_modules build dist .peers
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
