# make help lists the targets.

GO          ?= go
VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 5s
TESTFLAGS   ?=
BENCH       ?= .

# One static binary; the race detector alone needs cgo.
export CGO_ENABLED := 0

# The program begins with a high priority: internal/priority/early.
ENTRY := $(if $(filter amd64,$(shell $(GO) env GOARCH)),-E clrsnap_entry)

.DEFAULT_GOAL := build
.PHONY: help build dotnet demo test-race bench bench-server fuzz lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

build: ## bin/clrsnap, with the in-process agent if there is a C compiler
	@CC='$(CC)' scripts/build-agent.sh --optional
	$(GO) build -trimpath -buildvcs=false -ldflags '$(ENTRY) -X main.version=$(VERSION)' -o bin/clrsnap ./cmd/clrsnap

dotnet: ## the .NET runtime and compiler that tests and demo need
	@scripts/get-dotnet.sh 10 11

.PHONY: agent agent-arm64
agent: ## the in-process agent, to be built into bin/clrsnap (needs a C compiler)
	@CC='$(CC)' scripts/build-agent.sh

# For a clrsnap on arm64, which there is not yet. Debian: gcc-aarch64-linux-gnu.
agent-arm64:
	@scripts/build-agent.sh arm64 aarch64-linux-gnu-gcc

# Every runtime that is read: CI tests all of them.
.PHONY: dotnets
dotnets:
	@scripts/get-dotnet.sh 8 9 10 11 aot musl

# The programs that tests start, for the frameworks of a layer.
.PHONY: apps apps-all
apps: dotnet
	@$(GO) run ./scripts/apps net10 net11

apps-all: dotnets
	@$(GO) run ./scripts/apps net8 net9 net10 net11

demo: build dotnet ## look at the threads of a small .NET service
	@scripts/demo.sh

.PHONY: speedscope tools
speedscope:
	@scripts/get-speedscope.sh

tools:
	@scripts/get-tools.sh

# Tests in four layers, and what they need. internal/testenv/layer says what belongs to which.
.PHONY: check test matrix proof
FORM ?= short
check: agent apps ## what a developer runs all day: offline tests, and one live test of each verb (two minutes)
	@GO='$(GO)' scripts/test.sh check $(TESTFLAGS)

test: tools agent dotnets apps speedscope ## all live behaviour on .NET 10 and 11, and the offline tests (ten minutes)
	@GO='$(GO)' scripts/test.sh live $(TESTFLAGS)

matrix: tools agent apps-all ## every other runtime, every shape, every kind of dump (FORM=full: installed runtimes too)
	@GO='$(GO)' scripts/test.sh matrix $(FORM) $(TESTFLAGS)

# The long form of the proofs takes hours, all together: PROOF=oracle is one of internal/proof.
PROOF ?=
proof: tools agent apps-all ## the proofs of docs/correctness.md (FORM=full: the long ones; PROOF=oracle: that one)
	@GO='$(GO)' scripts/test.sh proof $(FORM) $(TESTFLAGS) \
		$(foreach p,$(PROOF),$(if $(filter ./%,$p),$p,./internal/proof/$p))
	@[ -n '$(PROOF)' ] || GO='$(GO)' scripts/test.sh quiet $(FORM) $(TESTFLAGS)

test-race: tools agent dotnets apps speedscope ## live tests under the race detector (needs gcc)
	@CGO_ENABLED=1 GO='$(GO)' scripts/test.sh live -race $(TESTFLAGS)

# With a layer's tag (internal/testenv/layer) a benchmark fails if there is no .NET.
bench: dotnets agent ## all benchmarks, or those that match BENCH
	$(GO) test -tags proof -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) ./...

# Which programs: SERVER, a regular expression for benchmarks, such as RecordCost/web. How many
# pairs of windows: PAIRS. How many CPUs others may use meanwhile: QUIET. What observes them:
# WAYS, a regular expression for nothing, cpu-99, default, cpu-999, perf-99, perf-999, samples that nobody
# walks (taken-99, taken-999), 5 % of a CPU that is used for nothing (busy-5), and without the methods that
# await, cpu-99-async-never, default-async-never.
SERVER ?= RecordCost|RecordBegin
PAIRS  ?= 20
QUIET  ?= 0.04
WAYS   ?= .*
bench-server: dotnets agent ## what recording costs a web server and other programs, beside perf (two to three hours)
	@scripts/get-tools.sh bench
	$(GO) test -tags proof -timeout 6h -run '^$$' -bench '$(SERVER)' -benchtime $(PAIRS)x $(TESTFLAGS) \
		./internal/proof/cost -args -ways '$(WAYS)' -quiet '$(QUIET)'

fuzz: ## every fuzz target for FUZZTIME
	@GO='$(GO)' scripts/fuzz.sh $(FUZZTIME)

# Outside CI: half an hour, or twice that beside other work. FAULTS is a regular expression for files.
.PHONY: mutate
FAULTS ?=
mutate: tools agent dotnets ## do the tests find faults? single ones, one at a time, in copies of the code
	@$(GO) run ./scripts/mutate $(if $(FAULTS),'$(FAULTS)')

.PHONY: table
table: tools agent dotnets ## write docs/runtimes.md's table of what works from what the tests find
	@GO='$(GO)' scripts/test.sh matrix full -run '^(TestShapes|TestMusl|TestCores|TestSupport)$$' \
		./internal/matrix -args -update

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || \
		{ echo "gofmt -w is needed for:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

clean: ## remove what make has built here (the kit stays in the user's cache)
	rm -rf bin internal/inject/lib/*.so
