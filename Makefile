# make help lists the targets.

GO          ?= go
VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 5s
TESTFLAGS   ?=
BENCH       ?= .

# One static binary; the race detector alone needs cgo.
export CGO_ENABLED := 0

.DEFAULT_GOAL := build
.PHONY: help build dotnet demo test test-race bench fuzz lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' Makefile

build: ## bin/clrsnap
	$(GO) build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/clrsnap ./cmd/clrsnap

dotnet: ## the .NET runtime and compiler that tests and demo need
	@scripts/get-dotnet.sh 10

# .NET 9 is there to be refused.
.PHONY: dotnets
dotnets:
	@scripts/get-dotnet.sh 9 10

demo: build dotnet ## look at the threads of a small .NET service
	@scripts/demo.sh

test: dotnets ## all tests, none of them skipped for want of .NET
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_SOAK=$${CLRSNAP_SOAK:-30s} $(GO) test -timeout 20m $(TESTFLAGS) ./...

test-race: dotnets ## the same under the race detector (needs gcc)
	CGO_ENABLED=1 CLRSNAP_REQUIRE_DOTNET=1 $(GO) test -race -timeout 25m $(TESTFLAGS) ./...

bench: dotnets ## all benchmarks, or those that match BENCH
	CLRSNAP_REQUIRE_DOTNET=1 $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) ./...

fuzz: ## every fuzz target for FUZZTIME
	@GO='$(GO)' scripts/fuzz.sh $(FUZZTIME)

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w is needed for:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

clean: ## remove what make has built here (the kit stays in the user's cache)
	rm -rf bin
