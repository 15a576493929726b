# The only door to this workspace. `make help` lists what it opens.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Servers and commands start twice as fast from cached bytecode.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup pins fmt check lint types layers sizes gen gen-check docs test test-cluster test-images bench demo nightly dist image release artifacts browser prometheus clean

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
UV      := $(BIN)/uv
DISTS   := $(sort $(patsubst %/pyproject.toml,%,$(wildcard libs/*/pyproject.toml packages/*/pyproject.toml providers/*/pyproject.toml)))
STAMP   := $(VENV)/.stamp
APART   := ministack moto openbao-ldap
CORES   := $(shell nproc 2>/dev/null || echo 2)
# Tests wait for servers about as long as they compute: two more workers than processors keep all processors busy.
JOBS    ?= $(shell expr $(CORES) + 2)
# Neighbours stay on one worker, which starts the servers of a file or folder once; an idle worker takes from a busy one.
SPREAD   = -n $(JOBS) --dist worksteal
say      = @printf '\033[1m==> %s\033[0m\n' "$(1)"

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)/dists ## create .venv with everything, `eso` included

$(STAMP)/venv:
	$(call say,creating $(VENV))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/uv: requirements/bootstrap.txt | $(STAMP)/venv
	$(call say,installing the installer)
	@$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r $<
	@touch $@

$(STAMP)/deps: requirements/dev.txt $(STAMP)/uv
	$(call say,installing pinned dependencies)
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --compile-bytecode --require-hashes -r $<
	@touch $@

$(STAMP)/dists: $(DISTS:%=%/pyproject.toml) $(STAMP)/deps
	$(call say,installing the workspace: $(notdir $(DISTS)))
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --no-deps --no-build-isolation $(DISTS:%=-e %)
	@touch $@

pins: $(STAMP)/uv ## renew the hashed pins from requirements/*.in
	@for f in bootstrap dev release $(APART); do $(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --universal --python-version 3.11 requirements/$$f.in -o requirements/$$f.txt; done
	@$(BIN)/python tools/image_pins.py $(CURDIR)/$(UV)

fmt: setup ## format the code
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix-only .

check: lint types layers sizes gen-check docs ## format, lint, types, layers, sizes, generated files, links of the docs

lint: setup
	$(call say,ruff)
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --diff .; exit 1; }
	@$(BIN)/ruff check --quiet .

types: setup
	$(call say,mypy strict)
	@printf '%s\n' $(DISTS) . | xargs -P $(CORES) -I{} $(BIN)/python tools/check_types.py {}

layers: setup
	$(call say,layers)
	@$(BIN)/lint-imports > $(STAMP)/layers.log || { cat $(STAMP)/layers.log; exit 1; }

sizes: setup
	@$(BIN)/python tools/check_sizes.py

gen: setup ## write the generated files (stubs, CRDs, reference pages, schemas of the charts)
	@$(BIN)/python tools/gen_stubs.py
	@$(BIN)/python tools/gen_codec.py
	@$(BIN)/python tools/gen_crds.py deploy/crds
	@$(BIN)/python tools/gen_docs.py docs/reference
	@$(BIN)/python tools/gen_chart_schema.py deploy/charts

gen-check: setup
	$(call say,generated files)
	@$(BIN)/python tools/gen_stubs.py --check
	@$(BIN)/python tools/gen_codec.py --check
	@$(BIN)/python tools/gen_crds.py --check deploy/crds
	@$(BIN)/python tools/gen_docs.py --check docs/reference
	@$(BIN)/python tools/gen_chart_schema.py --check deploy/charts

# The variable hides a notice: Material for MkDocs gets no fixes after May 2027.
docs: setup ## the documentation site, into site/; fails at a dead link
	$(call say,documentation site)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Servers for tests that cannot be installed beside everything else.
$(STAMP)/apart-%: requirements/%.txt $(STAMP)/uv
	$(call say,installing $* apart)
	@rm -rf $(VENV)/apart/$*
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --require-hashes --target $(VENV)/apart/$* -r $<
	@touch $@

test: setup $(APART:%=$(STAMP)/apart-%) ## every test that needs no Go toolchain
	$(call say,tests on the embedded API server)
	@$(BIN)/pytest $(SPREAD) -m 'not cluster' libs packages providers tests

browser: ## Debian's Chromium with its driver, for the tests of the dashboard; without them these tests are skipped
	@{ command -v chromium && command -v chromedriver; } > /dev/null || { echo 'installing Chromium'; \
	  apt-get -qq update && apt-get -qq install --no-install-recommends chromium chromium-driver fonts-dejavu-core > /dev/null; }

prometheus: ## Debian's Prometheus, which evaluates the alerts on a running release; without it these tests are skipped
	@{ command -v prometheus && command -v promtool; } > /dev/null || { echo 'installing Prometheus'; \
	  apt-get -qq update && apt-get -qq install --no-install-recommends prometheus > /dev/null; }

# Everything runs on the newest pinned Kubernetes; on the one before only what depends on the version of the API server.
WHOLE      := libs packages providers tests
OLDER_PART := tests/api tests/crds libs/kuberun $(addprefix packages/eso-operator/tests/,targets process \
  $(addprefix controllers/,externalsecret generatorstate fanout))
# Each worker has an API server and an etcd of its own, which compute too: no more workers than processors.
test-cluster: setup ## the API and runtime suites on a real kube-apiserver (needs Go once)
	$(call say,tests on a real kube-apiserver)
	@versions=$$($(BIN)/python tools/kube-apiserver/build.py --versions); \
	helm=$${HELM:-$$($(BIN)/python tools/kube-apiserver/build.py --helm)}; \
	part='$(WHOLE)'; \
	for version in $$versions; do \
	  assets=$$($(BIN)/python tools/kube-apiserver/build.py $$version); \
	  echo "Kubernetes $$version: $$part"; \
	  HELM=$$helm KUBEBUILDER_ASSETS=$$assets $(BIN)/pytest -n $(CORES) --dist worksteal --apiserver=kube -m live $$part; \
	  part='$(if $(filter all,$(KUBE_VERSIONS)),$(WHOLE),$(OLDER_PART))'; \
	done

bench: setup ## measure, as ratios within one run; ONLY=NAMES measures some of it
	@$(BIN)/python bench/run.py $(ONLY)

demo: setup ## everything on this machine, shown and checked step by step; then stop
	@$(BIN)/python tools/demo.py

nightly: setup ## the long forms: minutes of trouble, a thousand objects, many crashes, broken watches, malformed requests
	$(call say,extended suites)
	@ESO_SOAK_SECONDS=600 ESO_SCALE_OBJECTS=1000 ESO_CHAOS_WRITES=10000 ESO_CRASH_SEEDS=1000 \
	  ESO_CRASH_ROUNDS=100 ESO_MALFORMED_SEEDS=300 \
	  $(BIN)/pytest $(SPREAD) -rP tests/soak tests/crash tests/faults tests/conformance tests/e2e \
	  libs/localkube/tests/test_malformed_requests.py libs/kuberun/tests/test_watch_chaos.py
	@$(MAKE) test-cluster KUBE_VERSIONS=all
	@$(MAKE) --no-print-directory test-images

dist: setup ## a wheel of each distribution; that of the core holds no provider
	$(call say,wheels into dist/)
	@$(BIN)/python tools/dist.py dist wheel

image: ## an image from dist/, with buildah, podman or docker: NAME=operator|eso|providers|vault|…, BASE=IMAGE@sha256:…
	@SOURCE="$(SOURCE)" BUILD_FLAGS="$(BUILD_FLAGS)" $(PYTHON) tools/image.py "$(NAME)" "$(BASE)" --tag "$(TAG)"

# The tests of images install offline, from a folder that is filled once.
$(STAMP)/wheelhouse: $(wildcard requirements/images/*.txt) $(STAMP)/uv
	$(call say,downloading what the images install)
	@for each in requirements/images/*.txt; do $(BIN)/python -m pip download --quiet --no-deps --require-hashes \
	  --only-binary :all: --dest $(VENV)/wheelhouse -r $$each; done
	@touch $@

test-images: setup dist $(STAMP)/wheelhouse $(STAMP)/apart-release ## the steps of deploy/Containerfile, and a whole release, without a registry
	$(call say,tests of images and releases)
	@ESO_TEST_IMAGES=1 $(BIN)/pytest tests/images

release: setup $(STAMP)/apart-release ## VERSION=X.Y.Z: versions, changelog, a commit; then everything that is published, into dist/X.Y.Z
	@$(BIN)/python tools/release.py prepare "$(VERSION)"
	@$(BIN)/python tools/release.py artifacts

artifacts: setup $(STAMP)/apart-release ## the files of a release again, from this commit, to compare them
	@$(BIN)/python tools/release.py artifacts

clean: ## remove everything that make wrote
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .demo
