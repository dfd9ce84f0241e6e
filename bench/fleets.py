"""The fleets that are measured, as inventory files.

Every VM is known by a source address of loopback, so one client can be any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_VMS_PER_SUBNET = 250


@dataclass(frozen=True, slots=True)
class BenchVm:
    """One VM of a fleet."""

    name: str
    scope: str
    update_domain: int
    host: str
    address: str


@dataclass(frozen=True, slots=True)
class BenchFleet:
    """VMs in scopes of equal size. `scopes` are lists of VMs, in the order of their names."""

    scopes: tuple[tuple[BenchVm, ...], ...]

    @property
    def vms(self) -> tuple[BenchVm, ...]:
        return tuple(vm for scope in self.scopes for vm in scope)

    def inventory(self) -> str:
        """The fleet as an inventory file."""
        hosts = sorted({vm.host for vm in self.vms})
        return "\n".join([*_host_lines(hosts), *_scope_lines(self.scopes)])


def fleet(*, scopes: int, vms_per_scope: int, hosts: int, domains: int) -> BenchFleet:
    """A fleet whose VMs are dealt to hosts and, within a scope, to update domains."""
    made = []
    for scope in range(scopes):
        numbers = range(scope * vms_per_scope, (scope + 1) * vms_per_scope)
        made.append(
            tuple(
                BenchVm(
                    name=f"vm-{number:05d}",
                    scope=f"scope-{scope:04d}",
                    update_domain=number % domains,
                    host=f"host-{number % hosts:03d}",
                    address=address(number),
                )
                for number in numbers
            )
        )
    return BenchFleet(tuple(made))


def address(number: int) -> str:
    """The source address of a VM; 127.0.0.1, the first, needs no binding."""
    if number == 0:
        return "127.0.0.1"
    subnet, last = divmod(number, _VMS_PER_SUBNET)
    return f"127.{1 + subnet // 256}.{subnet % 256}.{last + 1}"


def _host_lines(hosts: Iterable[str]) -> Iterable[str]:
    for host in hosts:
        yield f'[[host]]\nname = "{host}"'


def _scope_lines(scopes: Iterable[tuple[BenchVm, ...]]) -> Iterable[str]:
    for scope in scopes:
        yield f'[[scope]]\nname = "{scope[0].scope}"\nkind = "placement-group"'
        for vm in scope:
            yield (
                f'[[vm]]\nname = "{vm.name}"\nscope = "{vm.scope}"\nhost = "{vm.host}"\n'
                f'update_domain = {vm.update_domain}\naddress = "{vm.address}"'
            )
