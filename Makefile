# make help lists what there is. Everything runs from .venv, which `make install` builds.
PYTHON ?= python3
comma := ,
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEEDS ?= 200
# Programs that tests look for are also where only root's PATH leads.
ROOT_FOLDERS := :/usr/local/sbin:/usr/sbin:/sbin
export PATH := $(PATH)$(ROOT_FOLDERS)
# libvirt's Python package is built against libvirt's headers, where the system has them.
EXTRAS := dev,hosts,oidc,postgres$(if $(shell pkg-config --exists libvirt 2> /dev/null && echo yes),$(comma)libvirt)

# What the guest's steps are tested against; a test whose program is missing is skipped and says so.
PACKAGES := exim4-daemon-light haproxy iproute2 openssl rsyslog systemd util-linux
# What other tests run: a browser, the commands of the docs, faults at a system call, polkit's JavaScript.
PACKAGES += chromium curl nodejs openssh-client strace
# A server for the store on PostgreSQL. The cluster that the package may start is not used.
PACKAGES += postgresql
# promtool, which looks at the alerts in packaging/prometheus.
PACKAGES += prometheus
# Another packager's kubectl does as well, and Debian's cannot be installed beside it.
PACKAGES += $(if $(shell command -v kubectl),,kubernetes-client)
# What the rig is made of: the hypervisor and its tools, a kernel for guests, and what is in them.
PACKAGES += libvirt-daemon-system libvirt-clients qemu-system-x86
PACKAGES += linux-image-cloud-amd64 busybox-static nftables
# What .venv is built with: libvirt's Python package is compiled.
PACKAGES += libvirt-dev pkg-config gcc python3-dev python3-venv
# DHCP as guests get it: the settings of docs/host/guide.md are tested with them.
PACKAGES += dnsmasq-base isc-dhcp-client udhcpc
LIFECYCLES ?= 10
SPEED ?= 1

# Tests wait more than they compute.
PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal
# What test-bare leaves for test-skipped: the ids of the tests that a bare machine has skipped.
BARE := .venv-bare
NOTES := $(CURDIR)/$(BARE)
SKIPPED := $(NOTES)/skipped
SKIPPED_OLDEST := $(NOTES)/skipped-oldest
# Processes, hosts, systemd and the link: where a test can depend on how busy the machine is.
STEADY := tests/system tests/host tests/packaging tests/guest/test_real_systemd.py
STEADY += tests/adapters/test_control_link.py $(wildcard tests/api/test_link_*.py)
TIMES ?= 30

.PHONY: help install packages run test test-bare test-skipped test-long test-steady check bench
.PHONY: rig rig-down test-rig dist pictures readme-picture screenshots format clean

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/'

$(READY): pyproject.toml guest/pyproject.toml guest/src/forewarn_guest/__init__.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' -e guest
	touch $@

install: $(READY) ## build .venv with the pinned packages and forewarn itself

packages: ## install the Debian packages of the rig and of the guest's steps (needs root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --no-upgrade $(PACKAGES)

run: $(READY) ## start the service with the demo fleet; DATA=DIR says where its state is kept
	@echo "The state is kept in the data folder that the next lines name, also after Ctrl-C;"
	@echo "\`make run DATA=DIR\` keeps it elsewhere, \`rm -r\` of that folder forgets it."
	$(BIN)/forewarn serve $(if $(DATA),--data "$(DATA)")

test: $(READY) ## run every test; SEEDS=n sets how many simulated worlds
	FOREWARN_TEST_SEEDS=$(SEEDS) $(PYTEST) $(NOTE_SKIPPED)
	$(BIN)/python guest/oldest.py $(NOTE_SKIPPED_OLDEST)

# In the sub-make nothing but the PATH differs: the libvirt extra is left out as pkg-config is missing.
test-bare: ## make test as on a bare Debian 12: a new environment, no program beyond make, git, Python
	rm -rf $(BARE)
	$(PYTHON) tests/bare_path.py $(BARE)/path
	PATH=$(NOTES)/path $(MAKE) test VENV=$(BARE) PYTHON=python3 ROOT_FOLDERS= \
	  NOTE_SKIPPED='-p guest.tests.skipped_tests --skipped-to=$(SKIPPED)' \
	  NOTE_SKIPPED_OLDEST='-p tests.skipped_tests --skipped-to=$(SKIPPED_OLDEST)'

test-skipped: $(READY) ## run what the last test-bare has skipped, with all that is installed here
	@test -e $(SKIPPED) -a -e $(SKIPPED_OLDEST) || { echo 'run make test-bare first' >&2; exit 2; }
	! test -s $(SKIPPED) || $(PYTEST) @$(SKIPPED)
	! test -s $(SKIPPED_OLDEST) || $(BIN)/python guest/oldest.py @$(SKIPPED_OLDEST)

test-long: $(READY) ## what need not run each time: ten times the worlds, the long run of the rig
	FOREWARN_TEST_SEEDS=$$((10 * $(SEEDS))) $(PYTEST) tests/simulation
	$(MAKE) test-rig LIFECYCLES=100

test-steady: $(READY) ## repeat the tests of processes, hosts, systemd and the link; TIMES=n, BUSY=1
	$(BIN)/python tests/steady.py --times $(TIMES) $(if $(BUSY),--busy) -- -n 4 $(STEADY)

# What of the guest package works on Windows: the SDK, and the commands that only ask.
WINDOWS := __init__ changes cli cli_events client dhcp discovery document errors following http1
WINDOWS += document_reader leases retry_policy terminal
WINDOWS := $(WINDOWS:%=guest/src/forewarn_guest/%.py)

check: $(READY) ## ruff, mypy --strict (the SDK also as on Windows), import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --follow-imports=silent $(WINDOWS)
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

pictures: $(READY) ## draw docs/pictures anew: the approval, who owns what, the package map
	$(BIN)/python -m pictures

readme-picture: $(READY) ## record the terminal at the top of the README (needs curl)
	$(BIN)/python -m pictures terminal

screenshots: $(READY) ## take the pictures of the console anew (needs chromium)
	$(BIN)/python -m pictures console

format: $(READY) ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv, dist and caches
	rm -rf $(VENV) $(BARE) .venv-oldest dist .mypy_cache .pytest_cache .ruff_cache
