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
.PHONY: help build dotnet demo test test-race bench bench-server fuzz lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

build: ## bin/clrsnap, with the in-process agent if there is a C compiler
	@CC='$(CC)' scripts/build-agent.sh --optional
	$(GO) build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/clrsnap ./cmd/clrsnap

dotnet: ## the .NET runtime and compiler that tests and demo need
	@scripts/get-dotnet.sh 10

.PHONY: agent agent-arm64
agent: ## the in-process agent, to be built into bin/clrsnap (needs a C compiler)
	@CC='$(CC)' scripts/build-agent.sh

# For a clrsnap on arm64, which there is not yet. Debian: gcc-aarch64-linux-gnu.
agent-arm64:
	@scripts/build-agent.sh arm64 aarch64-linux-gnu-gcc

# Every runtime that is read: CI tests all of them.
.PHONY: dotnets
dotnets:
	@scripts/get-dotnet.sh 8 9 10 aot musl

demo: build dotnet ## look at the threads of a small .NET service
	@scripts/demo.sh

.PHONY: speedscope tools
speedscope:
	@scripts/get-speedscope.sh

tools:
	@scripts/get-tools.sh

# What a test may not be skipped for want of.
REQUIRE := CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_REQUIRE_PERF=1 CLRSNAP_REQUIRE_CHROMIUM=1

# One package at a time: what they test is how threads share processors.
test: tools dotnets speedscope ## all tests, none of them skipped for want of .NET, Chromium or perf events
	@CC='$(CC)' scripts/build-agent.sh
	$(REQUIRE) CLRSNAP_SOAK=$${CLRSNAP_SOAK:-30s} $(GO) test -p 1 -timeout 30m $(TESTFLAGS) ./...

test-race: tools dotnets speedscope ## the same under the race detector (needs gcc)
	@CC='$(CC)' scripts/build-agent.sh
	CGO_ENABLED=1 $(REQUIRE) $(GO) test -race -timeout 25m $(TESTFLAGS) ./...

bench: dotnets agent ## all benchmarks, or those that match BENCH
	CLRSNAP_REQUIRE_DOTNET=1 $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) ./...

# Which programs: SERVER, a part of a benchmark's name, such as RecordCost/web. How many
# pairs of windows: PAIRS. CLRSNAP_BENCH_WAYS is a regular expression for what observes
# them: nothing, cpu-99, default, cpu-999, perf-99, perf-999.
SERVER ?= RecordCost|RecordBegin
PAIRS  ?= 20
bench-server: dotnets agent ## what recording costs a web server and other programs, beside perf (an hour)
	@scripts/get-tools.sh bench
	CLRSNAP_REQUIRE_DOTNET=1 $(GO) test -timeout 6h -run '^$$' -bench '$(SERVER)' -benchtime $(PAIRS)x $(TESTFLAGS) .

fuzz: ## every fuzz target for FUZZTIME
	@GO='$(GO)' scripts/fuzz.sh $(FUZZTIME)

.PHONY: oracle
oracle: dotnets ## compare a million frames with the CLR's own walk
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_ORACLE_FRAMES=$${CLRSNAP_ORACLE_FRAMES:-1000000} $(GO) test -timeout 60m -count 1 -run '^TestOracle$$' -v . $(TESTFLAGS)

# The long forms of what docs/correctness.md reports.
.PHONY: steps soak faults attacks
steps: dotnets ## single-step ten million instructions, walking after each
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_STEPS=$${CLRSNAP_STEPS:-10200000} $(GO) test -timeout 60m -count 1 -run TestEveryInstruction -v ./internal/singlestep $(TESTFLAGS)

soak: dotnets ## an hour of snapshots against the perf map (CLRSNAP_SOAK)
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_SOAK=$${CLRSNAP_SOAK:-1h} $(GO) test -timeout 3h -count 1 -run TestSoak -v . $(TESTFLAGS)

faults: dotnets ## ten thousand faults injected into captures
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_FAULTS=$${CLRSNAP_FAULTS:-10000} $(GO) test -timeout 60m -count 1 -run 'TestFaults$$' -v ./internal/target/live $(TESTFLAGS)

.PHONY: stopall
stopall: dotnets agent ## a thousand threads of one instant beside busy processes, a hundred times
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_STOPALL=$${CLRSNAP_STOPALL:-100} $(GO) test -timeout 60m -count 1 -run '^(TestStopAll|TestAtOnceIsOneInstant)$$' -v . $(TESTFLAGS)

.PHONY: damaged table
damaged: dotnets ## five thousand damaged core dumps
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_DAMAGED=$${CLRSNAP_DAMAGED:-5000} $(GO) test -timeout 60m -count 1 -run '^TestDamagedCores$$' -v . $(TESTFLAGS)

table: dotnets ## write docs/runtimes.md's table of what works from what the tests find
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_TABLE=1 $(GO) test -timeout 20m -count 1 -run '^(TestShapes|TestMusl|TestCores|TestSupport)$$' . $(TESTFLAGS)

.PHONY: shares recordsoak
shares: dotnets ## recordings of 20 seconds against what a program measured of itself
	@CC='$(CC)' scripts/build-agent.sh
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_SHARES=$${CLRSNAP_SHARES:-20s} $(GO) test -timeout 20m -count 1 -run 'TestRecordShares|TestEventShares' -v . $(TESTFLAGS)

recordsoak: dotnets ## a recording of ten minutes under load against the perf map
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_RECORD_SOAK=$${CLRSNAP_RECORD_SOAK:-10m} $(GO) test -timeout 60m -count 1 -run TestRecordSoak -v . $(TESTFLAGS)

.PHONY: ordeal
ordeal: dotnets agent ## what the agent's target must survive, a hundred times each
	CLRSNAP_REQUIRE_DOTNET=1 CLRSNAP_ORDEAL=$${CLRSNAP_ORDEAL:-full} $(GO) test -timeout 60m -count 1 -run '^TestOrdeal' -v . $(TESTFLAGS)

attacks: ## some thousand attacks on the memory that walks read
	CLRSNAP_ATTACKS=$${CLRSNAP_ATTACKS:-6600} $(GO) test -timeout 60m -count 1 -run 'TestHostile|TestEverything' -v ./internal/replay $(TESTFLAGS)

.PHONY: zoo
zoo: ## hostile processes and files, all of them, and what looking at them takes
	CLRSNAP_ZOO=all $(GO) test -timeout 60m -count 1 -run '^(TestHostileProcesses|TestView|TestSlow)' -v ./cmd/clrsnap $(TESTFLAGS)

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w is needed for:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

clean: ## remove what make has built here (the kit stays in the user's cache)
	rm -rf bin internal/inject/lib/*.so
