# The only commands to know. Everything happens in .venv, which is made from the files of this folder alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTEST := $(BIN)/pytest
DOCTESTS := $(PYTEST) --doctest-modules --doctest-ignore-import-errors --doctest-glob='*.md' --pyargs stompcodec README.md docs
# What the backend may make a difference to, under the sanitizers; `make test-pure` runs everything.
CORES := tests/codec tests/protocol tests/capture tests/broker tests/cli $(wildcard tests/client/test_core*.py)
SECONDS ?= 60
ROUNDS ?= 200
CUTS ?= 1000
SEEDS ?= 1000
# What draws pages from the code. Each has --check, which says whether its drawing is stale.
DRAWINGS := scripts/state_diagram.py scripts/unasync.py $(wildcard scripts/draw_*.py) benchmarks/draw_sharding.py scripts/queue_tools_picture.py \
	scripts/platforms_page.py scripts/repository.py scripts/rules_page.py scripts/proofs.py
SPARKS ?= 4.0 4.1 4.2 newest
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
	@cd $(VENV) && bin/python -m stompcodec.spark.demo --folder ../stompcodec-demo

demo-broker: $(VENV)/package.stamp ## decode a capture, and send it through broker, producer and consumer
	@cd $(VENV) && bin/python -m stompcodec.cli.demonstration.demo

dev: $(VENV)/dev.stamp ## install this tree itself: a change of Python takes effect at once, one of C after `make dev`
	$(BUILD) $(PIP) install --no-deps --no-build-isolation --editable .
	@$(if $(STOMPCODEC_BUILD_EXTENSION),$(BUILD) $(BIN)/python setup.py --quiet build_ext --inplace,true)
	@rm -f $(VENV)/package.stamp
	@touch $(VENV)/editable.stamp

quick: $(or $(wildcard $(VENV)/editable.stamp),$(VENV)/package.stamp) ## ruff on what changed, and the tests of ROOM (broker, client, …) but long ones
	@$(BIN)/python scripts/quick.py $(ROOM)

test: $(VENV)/package.stamp ## what CI runs: the suite with each backend, the examples, the instruction gate; in minutes
	@$(BIN)/python scripts/test.py

test-slow: $(VENV)/package.stamp $(VENV)/slow.stamp ## what takes longer: tests marked slow, and all of the suite with the Python backend
	@$(BIN)/python scripts/test.py --slow

test-peers: $(VENV)/package.stamp ## tests on other people's servers, started here: those of PEERS (all) that can run here; the rest is skipped
	@$(BIN)/python scripts/peers fetch $(PEERS)
	@$(PYTEST) --peers -m peer $(if $(PEERS),-k "$(subst $() $(), or ,$(strip $(PEERS)))") -rs

peers: $(BIN)/python ## other people's servers: which can run here, and what the others lack
	@$(BIN)/python scripts/peers list

test-pure: $(VENV)/package.stamp ## the suite and the examples on the Python backend
	STOMPCODEC_PURE=1 $(PYTEST)
	STOMPCODEC_PURE=1 $(DOCTESTS)

test-all: $(VENV)/package.stamp ## the suite on every installed interpreter
	@$(BIN)/python scripts/test_all.py

pythons: $(VENV)/package.stamp ## unpack CPython 3.14 and 3.15 of Debian's next release for test-all
	@$(BIN)/python scripts/debian_pythons.py

test-debug: $(VENV)/package.stamp ## the tests of the codec and of the plain road on a debug interpreter (DEBUG_PYTHON, or python3.X-dbg)
	@$(BIN)/python scripts/test_debug.py

test-arm64 test-armhf test-s390x: $(VENV)/package.stamp
	@$(BIN)/python scripts/test_foreign.py $(@:test-%=%) $(FOREIGN)
test-arm64: ## vectors and tests of the C backend on arm64 (NEON), emulated
test-armhf: ## vectors and tests of the C backend on armhf (32 bits), emulated
test-s390x: ## vectors and tests of the C backend on s390x (big-endian), emulated

test-spark: ## the tests of Spark on each version of SPARKS (4.0 4.1 4.2 newest); goes on where it was interrupted
	@$(PYTHON) scripts/test_spark.py $(SPARKS)

check: $(VENV)/package.stamp check-release ## lint, types, stubs, drawings, warnings of the C compiler
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/stubtest stompcodec._codec_c
	@for script in $(DRAWINGS); do echo "$$script --check"; $(BIN)/python $$script --check || exit 1; done
	@for file in $(filter-out src/codec.c,$(wildcard src/*.c src/plain/*.c)); do \
		echo "$$file"; $(COMPILER) $(C_FLAGS) -c $$file -o /dev/null || exit 1; done
	@echo "check passed: ruff, mypy, stubtest, $(words $(wildcard src/*.c src/plain/*.c)) C files without a warning"

cross: $(VENV)/package.stamp $(VENV)/cross.stamp ## compile the C files without Python.h for Windows, macOS, musl and wasm32, by Zig's compiler
	@$(BIN)/python scripts/cross_compile.py

# zizmor asks the repositories of the actions, too, if it has a token: whether a hash is of that repository and that version.
check-release: $(VENV)/release.stamp ## lint workflows, Dockerfile and conda recipe: zizmor, actionlint with shellcheck, hadolint, schemas
	$(BIN)/zizmor --quiet $(if $(GH_TOKEN),,--offline) .github
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/actionlint
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/hadolint deploy/docker/Dockerfile
	$(BIN)/python scripts/check_recipe.py

vectors: $(VENV)/package.stamp ## the vectors of FOLDER (tests/vectors), both backends, strict and lenient
	@$(BIN)/python tests/packaging/run_backends.py $(if $(STOMPCODEC_BUILD_EXTENSION),,--backend python) $(FOLDER)

corpus-full: $(VENV)/package.stamp ## digests of the corpus at full scale
	STOMPCODEC_CORPUS_SCALE=1.0 $(PYTEST) tests/codec/test_corpus.py

scenarios: $(VENV)/package.stamp ## the scenarios of FOLDER (tests/scenarios) against our broker, TCP and WebSocket
	@$(BIN)/python scripts/scenarios.py $(FOLDER)

crash: $(VENV)/package.stamp ## kill the broker ROUNDS (200) times (WINDOW=10: with that window), and its storage; cut CUTS (1000) connections; count what is lost
	@$(BIN)/python scripts/crash.py --rounds $(ROUNDS) --cuts $(CUTS) --storage $(ROUNDS) $(if $(WINDOW),--window $(WINDOW))

crash-peers: $(VENV)/package.stamp ## kill other people's brokers, PEERS (artemis activemq6 rabbitmq4), ROUNDS (20) times under our client; count what is lost
	@$(BIN)/python scripts/kill_peers.py --rounds $(if $(filter file,$(origin ROUNDS)),20,$(ROUNDS)) $(PEERS)

crash-spark: $(VENV)/package.stamp ## kill driver, JVM, recorder and broker under a Spark stream, ROUNDS times; count what is lost
	@$(BIN)/python scripts/spark_crash.py --rounds $(if $(filter file,$(origin ROUNDS)),24,$(ROUNDS))

attack: $(VENV)/package.stamp ## attack a broker in all ways at once for SECONDS (60), beside well-behaved clients
	@$(BIN)/python scripts/attack.py --seconds $(SECONDS)

simulate: $(VENV)/package.stamp ## SEEDS (1000) runs of broker, clients, disk and network in simulated time; or SEED=n with its trace
	@PYTHONHASHSEED=0 $(BIN)/python scripts/simulate.py $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

simulate-planted: $(VENV)/package.stamp ## which seed of the simulation finds each bug that is planted in the broker
	@PYTHONHASHSEED=0 $(BIN)/python scripts/simulate.py --planted

mutations: $(VENV)/package.stamp ## COUNT (102) faults from SEED (1) in all rooms: which ones the tests do not notice; goes on where it was
	@$(BIN)/python scripts/mutations.py $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(ROOM),--room $(ROOM))

soak: $(VENV)/package.stamp ## broker and clients under load for SECONDS (60); memory and order are watched
	STOMPCODEC_LONG=1 $(PYTEST) tests/client/test_under_load.py -k minute
	@$(BIN)/python scripts/soak.py --seconds $(SECONDS)

interop: $(VENV)/package.stamp ## other people's clients against our broker, our client against other brokers
	@$(BIN)/python scripts/interop.py $(if $(SUITES),--suites $(SUITES)) $(INTEROP)
	@$(PYTEST) -m slow tests/interop/test_proxies.py

bench: $(VENV)/package.stamp ## time the codec on the corpus
	$(PYTEST) benchmarks --override-ini='python_files=bench_codec.py' --benchmark-only

bench-peers: $(VENV)/package.stamp ## time other libraries and us; writes docs/benchmarks.md
	$(BIN)/python benchmarks/peers.py

bench-broker: $(VENV)/package.stamp ## time our broker and its peers; writes docs/benchmarks-broker.md
	$(BIN)/python benchmarks/bench_broker.py

bench-against: $(VENV)/package.stamp ## time our broker and that of the interpreter AGAINST in turns, LOADS of bench-broker
	@$(BIN)/python benchmarks/against.py $(or $(AGAINST),$(error AGAINST is not set: name a python with another stompcodec)) \
		$(if $(LOADS),--only $(LOADS))

bench-client: $(VENV)/package.stamp ## time our client and its peers
	$(BIN)/python benchmarks/bench_client.py

bench-isolation: $(VENV)/package.stamp ## time receipts beside clients that cost much, SECONDS (3) each; AGAINST=another python
	@$(BIN)/python benchmarks/bench_isolation.py --seconds $(if $(filter file,$(origin SECONDS)),3,$(SECONDS)) \
		$(if $(AGAINST),--against $(AGAINST))

bench-watch: $(VENV)/package.stamp ## time our broker alone and watched by top, /metrics and management, and its answers
	@$(BIN)/python benchmarks/bench_watch.py

bench-depth: $(VENV)/package.stamp ## time restarts, memory and neighbours of a queue of MESSAGES (500000); FULL=1: 5 and 50 million
	@$(BIN)/python benchmarks/depth.py $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(FULL),--full) \
		$(if $(PEERS),--peers $(PEERS))

bench-compat: $(VENV)/package.stamp ## time stomp.py and stompman as they are and on our codec
	$(BIN)/python benchmarks/bench_compat.py

bench-spark: $(VENV)/package.stamp ## time reading and writing by Spark, ours and hand-written; writes docs/benchmarks-spark.md
	$(BIN)/python benchmarks/bench_spark.py

instructions: $(VENV)/package.stamp ## count instructions per frame and per message (valgrind)
	$(BIN)/python benchmarks/instructions.py

subscriptions: $(VENV)/package.stamp ## count instructions of a SUBSCRIBE beside 1,000 others and beside 50,000 (valgrind)
	@$(BIN)/python benchmarks/subscriptions.py

compat: $(VENV)/package.stamp ## other libraries' own suites, from checkouts in SUITES, as they are and on our codec
	@$(BIN)/python scripts/compat.py $(SUITES)

large: $(VENV)/package.stamp ## messages of 2 and 4 GiB through the broker and the client, whose memory is watched
	@cd $(VENV) && bin/python ../scripts/large.py --rate 60
	@cd $(VENV) && bin/python ../scripts/large.py --client --size 4GiB

docs: $(VENV)/package.stamp ## write what is generated anew: drawings, keys of the broker's configuration, exit statuses
	@for script in $(DRAWINGS); do $(BIN)/python $$script || exit 1; done
	$(BIN)/python -c 'from stompcodec.broker.config.file import markdown; print(markdown(), end="")' > docs/broker-config.md
	$(BIN)/python -c 'import pathlib; from stompcodec.broker.management.schema import page_of as page; f = pathlib.Path("docs/management.md"); f.write_text(page(f.read_text()))'
	$(BIN)/python -m stompcodec.cli.statuses docs/cli.md

site: $(VENV)/package.stamp $(VENV)/site.stamp ## the docs site into build/site/html: strict, its links and hosts checked, its search asked
	@$(BIN)/python scripts/build_site.py
	@$(PYTEST) -q -m slow tests/docsite

notebooks: $(VENV)/package.stamp $(VENV)/notebooks.stamp ## run the notebooks (ONLY: some of parquet, delta, scripts), and write their pages with results
	@$(BIN)/python scripts/notebooks.py $(ONLY)

fuzz: $(VENV)/package.stamp ## every fuzz target for SECONDS (60)
	$(BIN)/python fuzz/run.py --seconds $(SECONDS)

fuzz-tcp: $(VENV)/package.stamp ## hostile sessions over TCP, WebSocket and the legacy port for SECONDS (60), from SEED
	$(BIN)/python fuzz/tcp.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

tsan: ## the tests with threads under ThreadSanitizer; PYTHON was built with --disable-gil --with-thread-sanitizer
	rm -rf build/tsan
	$(PYTHON) -m venv build/tsan
	build/tsan/bin/python -m pip install --quiet --prefer-binary "setuptools>=77" "cython>=3.1" pytest pytest-timeout pytest-xdist hypothesis websockets lark
	STOMPCODEC_BUILD_EXTENSION=yes STOMPCODEC_CFLAGS_EXTRA="-fsanitize=thread -O1 -g" \
		build/tsan/bin/python -m pip install --quiet --no-deps --no-build-isolation .
	TSAN_OPTIONS="halt_on_error=1 $(TSAN_OPTIONS)" PYTHON_GIL=0 build/tsan/bin/pytest tests/codec/test_threads.py

asan: $(VENV)/package.stamp ## the suite under AddressSanitizer and UndefinedBehaviorSanitizer
	rm -rf build/asan
	$(BIN)/python -m build --no-isolation --sdist --outdir build/asan . >/dev/null
	STOMPCODEC_BUILD_EXTENSION=yes STOMPCODEC_CFLAGS_EXTRA="$(SANITIZE)" \
		$(PIP) install --no-deps --no-build-isolation --target build/asan/site build/asan/*.tar.gz
	LD_PRELOAD="$(PRELOAD)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
		STOMPCODEC_PURE=0 PYTHONPATH=build/asan/site $(PYTEST) $(filter-out tests/cli,$(CORES)) tests/native \
		--ignore=tests/broker/test_hostile.py --ignore=tests/broker/test_scenarios.py -m "not no_asan and not slow"

dist: $(VENV)/package.stamp ## sdist and wheels, each installed into an empty environment and tried
	@$(BIN)/python scripts/dist.py

rehearse: $(VENV)/release.stamp ## a release but for publishing, on a clone: RELEASING.md; REHEARSE="--keep DIR --json"
	@$(BIN)/python scripts/rehearse.py $(REHEARSE)

clean: ## remove everything that was built
	rm -rf $(VENV) build dist stompcodec-demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks stompcodec/*.so stompcodec/broker/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(SOURCES) | $(BIN)/python
	@echo "Building stompcodec and installing it into $(VENV)"
	@$(BUILD) $(BIN)/python scripts/install.py install ".[cli,broker,spark]"
	@touch $@

# Without the package, which would be built twice. What is imported is compiled then: a tenth of all.
$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@echo "Installing the tools of pyproject.toml into $(VENV)"
	@$(BIN)/python scripts/requirements.py dev spark > $(VENV)/dev.txt
	@$(PIP) install --no-compile --requirement $(VENV)/dev.txt
	@touch $@

$(VENV)/slow.stamp $(VENV)/cross.stamp $(VENV)/release.stamp $(VENV)/site.stamp $(VENV)/notebooks.stamp: $(VENV)/%.stamp: $(VENV)/dev.stamp
	@$(BIN)/python scripts/requirements.py $* > $(VENV)/$*.txt
	@$(PIP) install --no-compile --requirement $(VENV)/$*.txt
	@touch $@

# The tests run on what is installed here. The build is also copied into the tree, for programs that are run from it.
$(VENV)/package.stamp: $(VENV)/dev.stamp $(SOURCES)
	@find build -path 'build/lib*' -type f ! -name '*.so' -delete 2>/dev/null || true
	@rm -f $(VENV)/editable.stamp
	$(BUILD) $(PIP) install --no-deps --no-build-isolation .
	@$(if $(STOMPCODEC_BUILD_EXTENSION),$(BUILD) $(BIN)/python setup.py --quiet build_ext --inplace,true)
	@cd $(VENV) && bin/python -c 'import stompcodec; print("installed with the backend:", stompcodec.BACKEND)'
	@touch $@
