# make help lists what there is. Everything runs from .venv, which `make install` builds.
PYTHON ?= python3
comma := ,
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEEDS ?= 200
# libvirt's Python package is built against libvirt's headers, where the system has them.
EXTRAS := dev,hosts$(if $(shell pkg-config --exists libvirt 2> /dev/null && echo yes),$(comma)libvirt)

# What the guest's steps are tested against; a test whose program is missing is skipped and says so.
PACKAGES := exim4-daemon-light haproxy iproute2 openssl rsyslog systemd util-linux
# Another packager's kubectl does as well, and Debian's cannot be installed beside it.
PACKAGES += $(if $(shell command -v kubectl),,kubernetes-client)
# What the rig is made of: the hypervisor and its tools, a kernel for guests, and what is in them.
PACKAGES += libvirt-daemon-system libvirt-clients qemu-system-x86
PACKAGES += linux-image-cloud-amd64 busybox-static nftables
# What .venv is built with: libvirt's Python package is compiled.
PACKAGES += libvirt-dev pkg-config gcc python3-dev python3-venv
# DHCP as guests get it: the settings of docs/network.md are tested with them.
PACKAGES += dnsmasq-base isc-dhcp-client udhcpc
LIFECYCLES ?= 10
SPEED ?= 1

.PHONY: help install packages run test check bench rig rig-down test-rig dist format clean

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/'

$(READY): pyproject.toml guest/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' -e guest
	touch $@

install: $(READY) ## build .venv with the pinned packages and forewarn itself

packages: ## install the Debian packages of the rig and of the guest's steps (needs root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --no-upgrade $(PACKAGES)

run: $(READY) ## start the service with the demo fleet
	$(BIN)/forewarn serve

test: $(READY) ## run every test; SEEDS=n sets how many simulated worlds
	FOREWARN_TEST_SEEDS=$(SEEDS) $(BIN)/python -m pytest -n 4
	$(BIN)/python guest/oldest.py

check: $(READY) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY) ## measure against nginx in one run; writes bench/results.json
	$(BIN)/python -m bench

rig: $(READY) ## two hypervisors with real guests on this machine, until Ctrl-C (needs root)
	FOREWARN_RIG_SPEED=$(SPEED) $(BIN)/python -m rig

rig-down: $(READY) ## remove what a rig that was killed has left
	$(BIN)/python -m rig down

test-rig: $(READY) ## real lifecycles and faults on the rig; LIFECYCLES=n sets how many
	FOREWARN_RIG_LIFECYCLES=$(LIFECYCLES) $(BIN)/python -m pytest rig/tests

dist: $(READY) ## write dist/forewarn-VERSION-ABI.pyz: one file to download and run
	$(BIN)/python -m bundle

format: $(READY) ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv, dist and caches
	rm -rf $(VENV) .venv-oldest dist .mypy_cache .pytest_cache .ruff_cache
