# Everything a developer runs. Each target says what it does and brings what it needs: tools into .cache/, the rest by the
# system's package manager. None needs a terminal; .ci/run calls the same targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

GO ?= go
GO_NEEDED := $(shell sed -n 's/^go //p' go.mod)
BIN := $(CURDIR)/.cache/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Pinned: a new linter release must not break a build that did not change.
GOLANGCI_LINT := v2.15.0
GOVULNCHECK := v1.9.0

PKG ?= ./...
FUZZTIME ?= 30s

# -buildvcs=false: the version is passed in, and Go's own stamping fails in a checkout that belongs to another user.
BUILD := CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

# ---- build and run ---------------------------------------------------------------------------------------------------

.PHONY: build
build: need-go ## build bin/holdfast: static, without cgo
	@echo "building bin/holdfast $(VERSION)"
	@$(BUILD) -o bin/holdfast ./cmd/holdfast

.PHONY: run
run: build ## build and start the sidecar on its embedded SQLite, data in ./data
	@mkdir -p data
	@addr=$${HOLDFAST_ADDR:-127.0.0.1:8088}; \
	echo "starting Holdfast on http://$$addr, data in ./data; Ctrl-C stops it. In another terminal, twice:"; \
	echo "  curl -s http://$$addr/claim -H 'Content-Type: application/json' -d '{\"source\":\"demo\",\"idempotency_key\":\"order-1\"}'"; \
	exec bin/holdfast serve

# ---- test ------------------------------------------------------------------------------------------------------------

# checkptr=0: pointer checks inside the translated C of SQLite double the time and are not about our code.
.PHONY: test
test: need-go need-cc ## run all fast tests, on SQLite and PostgreSQL, with the race detector (PKG=./... for a part)
	@CGO_ENABLED=1 .ci/with-postgres $(GO) test -race -gcflags=all=-d=checkptr=0 -shuffle=on -timeout 20m $(PKG)

.PHONY: test-pooled
test-pooled: need-go ## run the whole conformance suite behind PgBouncer in transaction mode too
	@.ci/with-postgres $(GO) test -tags pooled -run TestPooled -count=1 ./internal/store

.PHONY: test-short
test-short: need-go ## the same without the race detector and without what takes long
	@.ci/with-postgres $(GO) test -short -shuffle=on $(PKG)

.PHONY: e2e
e2e: need-go ## run the templates in a real n8n (installed under .cache/ the first time: minutes, 3 GB)
	@.ci/n8n
	@GO=$(GO) .ci/stripe-mock
	@.ci/with-postgres $(GO) test -tags e2e -count=1 -timeout 20m ./internal/e2e/...

.PHONY: bench
bench: build ## measure the program against plain inserts (BENCH='-seconds 5 …'), then run the benchmarks of the packages
	@.ci/with-postgres $(GO) run ./internal/bench $(BENCH)
	@.ci/with-postgres $(GO) test -run '^$$' -bench . -benchmem $(PKG)

# go test fuzzes one target of one package at a time.
.PHONY: fuzz
fuzz: need-go ## fuzz each target for FUZZTIME (30s)
	@for package in $$($(GO) list $(PKG)); do \
	  for target in $$($(GO) test -run '^$$' -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "fuzzing $$package $$target for $(FUZZTIME)"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime "$(FUZZTIME)" "$$package"; \
	  done; \
	done

# ---- lint ------------------------------------------------------------------------------------------------------------

# The Go files of this repository, without what is installed into it.
GO_FILES = $$(find . \( -path ./.cache -o -path ./.git -o -name node_modules \) -prune -o -name '*.go' -print)

.PHONY: lint
lint: need-go lint-tools ## run all linters, and check that go.mod is tidy
	@echo "== gofmt"
	@wrong=$$(gofmt -l $(GO_FILES)); [ -z "$$wrong" ] || { printf 'not formatted (make fmt):\n%s\n' "$$wrong" >&2; exit 1; }
	@echo "== go vet"
	@$(GO) vet -tags e2e ./...
	@echo "== golangci-lint"
	@$(BIN)/golangci-lint run ./...
	@echo "== go mod verify, go mod tidy"
	@$(GO) mod verify
	@$(GO) mod tidy -diff
	@echo "== shellcheck"
	@if command -v shellcheck >/dev/null; then shellcheck --severity=warning $$(grep -lE '^#!.*sh$$' .ci/*); \
	else echo "not installed, skipped"; fi
	@echo "== govulncheck"
	@$(GOVULNCHECK_RUN)

# Its list of known holes is on the network. Not reaching that says nothing about the code; a finding does (status 3), and
# so does every other failure.
define GOVULNCHECK_RUN
status=0; out=$$(timeout 300 $(BIN)/govulncheck ./... 2>&1) || status=$$?; \
if [ $$status -eq 124 ] || { [ $$status -ne 0 ] && [ $$status -ne 3 ] && grep 'fetching vulnerabilities' <<<"$$out" >/dev/null; }; \
then echo "its data cannot be reached from here, skipped"; \
else echo "$$out"; exit $$status; fi
endef

.PHONY: fmt
fmt: need-go lint-tools ## format all Go files
	@$(BIN)/golangci-lint fmt

.PHONY: lint-tools
lint-tools: need-go
	$(call install,golangci-lint,github.com/golangci/golangci-lint/v2,$(GOLANGCI_LINT),cmd/golangci-lint)
	$(call install,govulncheck,golang.org/x/vuln,$(GOVULNCHECK),cmd/govulncheck)

# $(call install,PROGRAM,MODULE,VERSION,PACKAGE): into .cache/bin, unless that very version is there. GOFLAGS is emptied,
# because what it says is meant for this module. (grep -q would close the pipe early, which pipefail takes for a failure.)
define install
@if ! $(GO) version -m $(BIN)/$(1) 2>/dev/null | grep -F "$$(printf 'mod\t%s\t%s\t' $(2) $(3))" >/dev/null; then \
  echo "installing $(1) $(3) into .cache/bin (once; this can take minutes)"; \
  GOFLAGS= GOBIN=$(BIN) $(GO) install $(2)/$(4)@$(3); \
fi
endef

# ---- package ---------------------------------------------------------------------------------------------------------

.PHONY: docker
docker: ## build the image holdfast:VERSION
	@docker info >/dev/null 2>&1 || { echo "this needs a running Docker" >&2; exit 1; }
	docker build --build-arg VERSION=$(VERSION) -t holdfast:$(VERSION) .

.PHONY: clean
clean: ## remove what was built or installed into the checkout (data/ stays)
	rm -rf bin .cache

# ---- what the machine must have --------------------------------------------------------------------------------------

# GOVERSION is asked for in the module, where a Go that fetches newer toolchains by itself answers with the one it takes.
.PHONY: need-go
need-go:
	@command -v $(GO) >/dev/null || { echo "Holdfast needs Go $(GO_NEEDED) or newer; '$(GO)' is not on the PATH (https://go.dev/doc/install)" >&2; exit 1; }
	@have=$$($(GO) env GOVERSION 2>/dev/null || $(GO) version | cut -d' ' -f3); have=$${have#go}; \
	[ "$$(printf '%s\n' $(GO_NEEDED) "$$have" | sort -V | head -n1)" = $(GO_NEEDED) ] || \
	  { echo "Holdfast needs Go $(GO_NEEDED) or newer; this is $$have (https://go.dev/doc/install)" >&2; exit 1; }

# The race detector is linked by way of cgo.
.PHONY: need-cc
need-cc:
	@command -v "$${CC:-gcc}" >/dev/null || { \
	  if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing a C compiler for the race detector"; \
	    apt-get -qq update >/dev/null; \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends gcc libc6-dev >/dev/null; \
	  else \
	    echo "the race detector needs a C compiler; run: sudo apt-get install gcc libc6-dev (or: make test-short)" >&2; exit 1; \
	  fi; }
