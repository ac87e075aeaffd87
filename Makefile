# Every target installs what it needs first (scripts/setup), asks nothing, and leaves nothing running.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo run install uninstall package try-package test lint bench conformance fuzz soak loom guest

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install everything that building and testing need
	@scripts/setup build demo test bench

demo: ## a server, files over TCP and SMB Direct, compared and timed; demonstrations of SMB Direct
	@scripts/setup build demo
	@scripts/demo

run: ## a server on a default configuration; says how to mount it
	@scripts/setup build
	@scripts/run

install: ## this server into PREFIX (/usr/local), with its unit, manual pages and completions
	@scripts/setup build
	@scripts/install

uninstall: ## what install has installed; configuration and data stay
	@scripts/install --uninstall

package: ## target/package/*.deb and *.rpm
	@scripts/setup build package
	@scripts/package

try-package: ## both packages on a clean Debian that boots with systemd, in QEMU (5 minutes; root)
	@scripts/setup build package
	@scripts/test-package

test: ## unit tests, then system tests with real clients
	@scripts/setup build test
	@scripts/test $(SUITES)

lint: ## format, clippy, licences, house rules
	@scripts/setup build
	@scripts/lint

bench: ## beside smbd, beside no SMB at all, and pools beside fio; BENCH=--write: into docs/performance.md
	@scripts/setup build bench
	@scripts/bench $(BENCH)

conformance: ## all of smbtorture against Causeway and smbd, into docs/conformance.md (10 minutes)
	@scripts/setup build test
	@cargo build --quiet -p causeway
	@scripts/conformance --write

fuzz: ## every fuzz target for a minute
	@scripts/setup build
	@scripts/fuzz

soak: ## simulations of virtual disks and pools with new seeds, for SOAK_SECONDS (600) each
	@scripts/setup build
	@scripts/soak

loom: ## threads of the server's shared structures in all orders, deeper than make test does
	@scripts/setup build
	@LOOM_MAX_PREEMPTIONS=$${LOOM_MAX_PREEMPTIONS:-4} cargo test --package interleavings

guest: ## build the Linux guest of the system tests into target/guest (10 minutes)
	@scripts/setup guest
	@tests/guest/build
