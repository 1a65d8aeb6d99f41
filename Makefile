# The only commands to know. Everything happens in .venv, which is made from the files of this folder alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTEST := $(BIN)/pytest
# What the backend may make a difference to, under the sanitizers; `make test-slow` runs everything with each.
CORES := tests/codec tests/protocol tests/capture tests/broker tests/cli $(wildcard tests/client/test_core*.py)
SECONDS ?= 60
ROUNDS ?= 200
CUTS ?= 1000
SEEDS ?= 1000
# What is written from the code. Each has --check, which says whether it is stale.
WRITTEN := scripts/state_diagram.py scripts/unasync.py
SOURCES := pyproject.toml setup.py MANIFEST.in $(wildcard tests/run_*.py tests/conformance.py tests/vectors/*.json tests/scenarios/*.json) \
	$(shell find stompcodec src -type f ! -name '*.so' ! -name '*.pyc' ! -path src/codec.c)

# Whatever the environment says: the tests start Python so often that compiling anew each time would double their time.
unexport PYTHONDONTWRITEBYTECODE

# With a compiler and Python.h at hand a failed build is an error; without them pure Python is built.
COMPILER = $(shell $(PYTHON) -c 'import os, sysconfig as s; \
	print(os.environ.get("CC") or s.get_config_var("CC"), "-isystem", s.get_path("include"))')
STOMPCODEC_BUILD_EXTENSION ?= $(shell $(COMPILER) -include Python.h -fsyntax-only -x c /dev/null 2>/dev/null && echo yes)
BUILD = STOMPCODEC_BUILD_EXTENSION=$(STOMPCODEC_BUILD_EXTENSION)
C_FLAGS := -std=c11 -O2 -Wall -Wextra -Werror -Isrc
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -fno-wrapv -O1 -g
PRELOAD = $(shell gcc -print-file-name=libasan.so) $(shell gcc -print-file-name=libstdc++.so)

# All commands, which are no files.
.PHONY: $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*/\1/p' Makefile)

help: ## list these commands
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 18

demo: $(VENV)/demo.stamp ## a feed through broker, Spark and jobs into tables and a report; its driver is killed half-way
	@cd $(VENV) && bin/python ../examples/demo.py --folder ../stompcodec-demo

dev: $(VENV)/dev.stamp ## install this tree itself: a change of Python takes effect at once, one of C after `make dev`
	$(BUILD) $(PIP) install --no-deps --no-build-isolation --editable .
	@$(if $(STOMPCODEC_BUILD_EXTENSION),$(BUILD) $(BIN)/python setup.py --quiet build_ext --inplace,true)
	@rm -f $(VENV)/package.stamp
	@touch $(VENV)/editable.stamp

quick: $(or $(wildcard $(VENV)/editable.stamp),$(VENV)/package.stamp) ## ruff, and the tests of ROOM (broker, client/middleware, …) but long ones, those that failed last time first
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),light) $(PYTEST) --numprocesses 2 -m "not slow and not long" \
		--failed-first --maxfail 10 --durations 5 tests/$(or $(ROOM),$(error ROOM is not set: use a folder of tests/))

test: $(VENV)/package.stamp ## what CI runs: the suite with each backend, the examples, the instruction gate; in minutes
	@$(BIN)/python scripts/test.py

test-slow: $(VENV)/package.stamp $(VENV)/slow.stamp ## what takes longer: tests marked slow, and all of the suite with the Python backend
	@$(BIN)/python scripts/test.py --slow

test-peers: $(VENV)/package.stamp ## tests on other people's servers, started here: those of PEERS (all) that can run here; the rest is skipped
	@$(BIN)/python scripts/peers fetch $(PEERS)
	@$(PYTEST) --peers -m peer $(if $(PEERS),-k "$(subst $() $(), or ,$(strip $(PEERS)))") -rs

test-others: $(VENV)/package.stamp ## KIND=pythons, spark, debug, threads or emulated: the tests on other interpreters, PySparks and machines; NAMES: some of them
	@$(BIN)/python scripts/others.py $(or $(KIND),$(error KIND is not set: use pythons, spark, debug, threads or emulated)) $(NAMES)

check: $(VENV)/package.stamp ## lint, types, stubs, generated pages, warnings of the C compiler
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/stubtest --mypy-config-file pyproject.toml stompcodec._codec_c stompcodec.broker.sessions.road stompcodec.broker.storage.places
	@for script in $(WRITTEN); do echo "$$script --check"; $(BIN)/python $$script --check || exit 1; done
	@for file in $(filter-out src/codec.c,$(wildcard src/*.c src/hot/*.c)); do \
		echo "$$file"; $(COMPILER) $(C_FLAGS) -c $$file -o /dev/null || exit 1; done
	@echo "check passed: ruff, mypy, stubtest, $(words $(wildcard src/*.c src/hot/*.c)) C files without a warning"

dist: $(VENV)/release.stamp ## sdist and wheels of this interpreter, into dist/
	$(BIN)/python -c 'import pathlib, sys; sys.path.insert(0, "scripts"); import release; release.build(pathlib.Path("dist"))'

# zizmor asks the repositories of the actions, too, if it has a token: whether a hash is of that repository and that version.
release-check: $(VENV)/package.stamp $(VENV)/release.stamp ## lint workflows and image, say what is against a release, build sdist and wheels and try them
	$(BIN)/zizmor --quiet $(if $(GH_TOKEN),,--offline) .github
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/actionlint
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/hadolint deploy/docker/Dockerfile
	$(BIN)/python scripts/release.py

vectors: $(VENV)/package.stamp ## the vectors of FOLDER (tests/vectors), both backends, strict and lenient
	@$(BIN)/python tests/packaging/run_backends.py $(if $(STOMPCODEC_BUILD_EXTENSION),,--backend python) $(FOLDER)

scenarios: $(VENV)/package.stamp ## the scenarios of FOLDER (tests/scenarios) against our broker, TCP and WebSocket
	@STOMPCODEC_SCENARIOS=$(abspath $(FOLDER)) $(PYTEST) -q tests/broker/test_scenarios.py

# What is killed, and how often.
CRASH_broker = crash.py --rounds $(ROUNDS) --cuts $(CUTS) $(if $(WINDOW),--window $(WINDOW))
CRASH_peers = kill_peers.py --rounds $(if $(filter file,$(origin ROUNDS)),20,$(ROUNDS)) $(PEERS)
CRASH_spark = crash.py spark --rounds $(if $(filter file,$(origin ROUNDS)),24,$(ROUNDS))
crash: $(VENV)/package.stamp ## kill the broker ROUNDS (200) times, and its storage; cut CUTS (1000) connections; count what is lost. WHAT=peers (of PEERS), spark
	@$(BIN)/python scripts/$(CRASH_$(or $(WHAT),broker))

simulate: $(VENV)/package.stamp ## SEEDS (1000) runs of broker, clients, disk and network in simulated time, and an hour for leaks; or SEED=n with its trace; PLANTED=1
	@PYTHONHASHSEED=0 $(BIN)/python scripts/simulate.py $(if $(PLANTED),--planted,$(if $(SEED),--seed $(SEED),--seeds $(SEEDS)))
	@$(if $(PLANTED)$(SEED),true,$(BIN)/python scripts/simulate.py --leaks)

mutants: $(VENV)/package.stamp ## try the faults of LIST (tests/mutants.tsv) that have no verdict; AGAIN=1: what was noticed, COUNT (all), must be again
	@$(BIN)/python scripts/mutations.py $(LIST) $(if $(AGAIN),--again) $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) \
		$(if $(ROOM),--room $(ROOM))

interop: $(VENV)/package.stamp build/interop/ready ## other people's clients against our broker, our client against other brokers; SUITES=folder of checkouts: their own suites
	@$(if $(SUITES),$(BIN)/python scripts/compat.py $(SUITES),$(BIN)/python scripts/interop.py $(INTEROP))

differential: $(VENV)/package.stamp ## the scenarios on BROKER (activemq6, artemis, …, or NAME=URL) and on our broker in its dialect, compared; RECORD=1 keeps its answers
	@$(BIN)/python tests/interop/differential.py $(or $(BROKER),$(error BROKER is not set: name one of scripts/peers)) $(if $(RECORD),--record)

bench: $(VENV)/package.stamp $(VENV)/bench.stamp ## time WHAT (all of "codec broker client spark") beside others; writes docs/benchmarks.md
	@$(BIN)/python benchmarks/bench.py $(WHAT)

bench-against: $(VENV)/package.stamp ## time our broker and that of the interpreter AGAINST in turns, LOADS of benchmarks/load.py
	@$(BIN)/python benchmarks/bench.py --against $(or $(AGAINST),$(error AGAINST is not set: name a python with another stompcodec)) \
		$(if $(LOADS),--only $(LOADS))

instructions: $(VENV)/package.stamp ## count instructions per frame and per message (valgrind)
	@$(BIN)/python benchmarks/instructions.py

docs: $(VENV)/package.stamp ## write what is generated anew: the states, the client for threads, keys of the broker's configuration, exit statuses
	@for script in $(WRITTEN); do $(BIN)/python $$script || exit 1; done
	$(BIN)/python -c 'import pathlib; from stompcodec.broker.config import page_of as page; f = pathlib.Path("docs/broker.md"); f.write_text(page(f.read_text()))'
	$(BIN)/python -c 'import pathlib; from stompcodec.broker.management.schema import page_of as page; f = pathlib.Path("docs/management.md"); f.write_text(page(f.read_text()))'
	$(BIN)/python -m stompcodec.cli.app docs/cli.md

site: $(VENV)/package.stamp $(VENV)/site.stamp ## the docs site into build/site/html: strict, its links and hosts checked, its search asked
	@$(BIN)/python scripts/build_site.py
	@$(PYTEST) -q -m slow tests/docsite

fuzz: $(VENV)/package.stamp ## every fuzz target for SECONDS (60)
	$(BIN)/python fuzz/run.py --seconds $(SECONDS)

asan: $(VENV)/package.stamp ## the suite under AddressSanitizer and UndefinedBehaviorSanitizer
	rm -rf build/asan
	$(BIN)/python -m build --no-isolation --sdist --outdir build/asan . >/dev/null
	STOMPCODEC_BUILD_EXTENSION=yes STOMPCODEC_CFLAGS_EXTRA="$(SANITIZE)" \
		$(PIP) install --no-deps --no-build-isolation --target build/asan/site build/asan/*.tar.gz
	LD_PRELOAD="$(PRELOAD)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
		STOMPCODEC_PURE=0 PYTHONPATH=build/asan/site $(PYTEST) $(filter-out tests/cli,$(CORES)) tests/native \
		--ignore=tests/broker/test_hostile.py --ignore=tests/broker/test_scenarios.py -m "not no_asan and not slow"

clean: ## remove everything that was built
	rm -rf $(VENV) build dist stompcodec-demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks stompcodec/*.so stompcodec/broker/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +

# The clients that pip, npm and Composer have. What cannot be installed is said, and tried again the next time.
build/interop/ready: Makefile | $(BIN)/python
	@$(BIN)/python -m venv $(@D)/venv
	-npm install --silent --no-audit --no-fund --prefix $(@D)/node @stomp/stompjs @stomp/rx-stomp rxjs ws sockjs-client
	-mkdir -p $(@D)/php && composer require --quiet --no-interaction --working-dir=$(@D)/php stomp-php/stomp-php
	-echo stomp-py stompman websockets proxy.py sockjs | xargs -n 1 $(@D)/venv/bin/python -m pip install --quiet && \
		test -d $(@D)/node/node_modules/ws && touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(SOURCES) | $(BIN)/python
	@echo "Building stompcodec and installing it into $(VENV), with Spark: a minute or two"
	@$(BUILD) $(PIP) install ".[cli,broker,spark]"
	@touch $@

# Without the package, which would be built twice. What is imported is compiled then: a tenth of all.
$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@echo "Installing the tools of pyproject.toml into $(VENV)"
	@$(BIN)/python scripts/requirements.py dev > $(VENV)/dev.txt
	@$(PIP) install --no-compile --requirement $(VENV)/dev.txt
	@touch $@

$(VENV)/bench.stamp $(VENV)/test.stamp $(VENV)/slow.stamp $(VENV)/release.stamp $(VENV)/site.stamp: $(VENV)/%.stamp: $(VENV)/dev.stamp
	@$(BIN)/python scripts/requirements.py $* $(if $(filter test,$*),spark) > $(VENV)/$*.txt
	@$(PIP) install --no-compile --requirement $(VENV)/$*.txt
	@touch $@

# The tests run on what is installed here. The build is also copied into the tree, for programs that are run from it.
$(VENV)/package.stamp: $(VENV)/test.stamp $(SOURCES)
	@find build -path 'build/lib*' -type f ! -name '*.so' -delete 2>/dev/null || true
	@rm -f $(VENV)/editable.stamp
	$(BUILD) $(PIP) install --no-deps --no-build-isolation .
	@$(if $(STOMPCODEC_BUILD_EXTENSION),$(BUILD) $(BIN)/python setup.py --quiet build_ext --inplace,true)
	@cd $(VENV) && bin/python -c 'import stompcodec; print("installed with the backend:", stompcodec.BACKEND)'
	@touch $@
