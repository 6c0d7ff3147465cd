# The two commands that do all the set-up, and their counterparts. Their code is in xtask/.

.DEFAULT_GOAL := help
XTASK ?= cargo xtask
.PHONY: help demo demo-down test check tools

help:
	@echo 'make demo       a one-node Kubernetes with pitstop in it, and a container restarted in its Pod'
	@echo 'make demo-down  takes that Kubernetes down'
	@echo 'make test       all tests, those on a real cluster included'
	@echo 'make check      format, lints, licences, generated files, dependency law'

demo demo-down test check: tools
	@$(XTASK) $@

tools:
	@command -v cargo >/dev/null || { \
	  echo 'make: cargo is not on the PATH; install Rust as https://rustup.rs says' \
	    '(under sudo, keep your PATH: sudo -E env "PATH=$$PATH" make ...)' >&2; exit 1; }
	@command -v go >/dev/null || { \
	  echo 'make: go is not on the PATH; install Go 1.26 or later as https://go.dev/doc/install says' \
	    '(under sudo, keep your PATH: sudo -E env "PATH=$$PATH" make ...)' >&2; exit 1; }
