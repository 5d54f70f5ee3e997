# A line or a few each: the logic is in Go. No target installs anything, but for install, and vm-test, which installs QEMU where it is missing.

# What make check, and so CI, must not skip (features of internal/testskip). internal/lint keeps this line complete.
MUST_RUN := root,netns,xdp,io_uring,cgroup,npm,dns,prometheus,node-exporter,chromium,bash,groff,shellcheck

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# One package at a time: tests that measure share the machine with nothing else.
TEST := go test -p 1 -timeout 30m

# Where install puts things; DESTDIR goes before it, for packagers.
PREFIX ?= /usr/local

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build man install calibrate test check vet staticcheck cross test-all race kernel-test vm-test lint bench bench-smoke fuzz-smoke generate fmt clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

build: ## bin/blast, static
	CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/blast ./cmd/blast

man: build ## the manual pages, in bin/man
	rm -rf bin/man
	mkdir -p bin/man
	bin/blast man bin/man

install: man ## the binary, manual pages and completions below PREFIX (/usr/local)
	install -D bin/blast '$(DESTDIR)$(PREFIX)/bin/blast'
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/share/man/man1' bin/man/*.1
	install -d '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' '$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	bin/blast completion bash >'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/blast'
	bin/blast completion zsh >'$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_blast'
	bin/blast completion fish >'$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/blast.fish'

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
