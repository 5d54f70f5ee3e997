# One line each: the logic is in Go. No target installs anything, but for vm-test, which installs QEMU where it is missing.

# What make check, and so CI, must not skip (features of internal/testskip). internal/lint keeps this line complete.
MUST_RUN := root,netns,xdp,io_uring,cgroup,npm,dns,prometheus,chromium,shellcheck

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# One package at a time: tests that measure share the machine with nothing else.
TEST := go test -p 1 -timeout 15m

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build calibrate test check vet staticcheck cross test-all race kernel-test vm-test lint bench bench-smoke fuzz-smoke generate fmt clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

build: ## bin/blast, static
	CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/blast ./cmd/blast

calibrate: build ## measure this machine against itself
	bin/blast calibrate

test: ## all tests that this machine and user can run; go test -v says what was skipped and the remedy
	$(TEST) ./...

check: vet staticcheck cross build test-all race bench-smoke fuzz-smoke ## exactly what CI runs; needs root, skips nothing

vet: ## go vet
	go vet ./...

staticcheck: ## staticcheck, as pinned in go.mod
	go tool staticcheck ./...

cross: ## compile for another architecture
	CGO_ENABLED=0 GOARCH=arm64 go build -buildvcs=false ./...

test-all: ## test, where a skip is a failure
	BLAST_MUST_RUN=$(MUST_RUN) $(TEST) ./...

race: ## tests under the race detector, but for those of the kernel
	$(TEST) -race -skip '^Test(Kernel|Repository|Generated)' ./...

kernel-test: ## only the tests that need root and this kernel
	BLAST_MUST_RUN=$(MUST_RUN) $(TEST) -count=1 -run '^TestKernel' ./...

vm-test: ## boot a QEMU guest with two igb network cards and test on them; needs root where QEMU is missing
	BLAST_VM=1 BLAST_MUST_RUN=vm go test -count=1 -v -timeout 15m -run '^TestVM$$' ./internal/vm

lint: ## the rules of this repository
	go test -count=1 ./internal/lint

bench: ## backends side by side, as ratios
	BLAST_BENCH=1 $(TEST) -count=1 -v -run '^TestRatio' ./...

bench-smoke: ## every benchmark once
	BLAST_MUST_RUN=$(MUST_RUN) $(TEST) -run '^$$' -bench . -benchtime 1x ./...

fuzz-smoke: ## every fuzz target for a few seconds
	BLAST_FUZZ=3s go test -count=1 -v -run '^TestFuzzSmoke$$' ./internal/lint

generate: ## renew the generated files
	go generate ./...

fmt: ## gofmt
	gofmt -w .

clean: ## remove what build made
	rm -rf bin
