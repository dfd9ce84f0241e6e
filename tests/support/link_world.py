"""A real control plane with its link on loopback, and machines that join it, for tests.

Machines here are made of httpx and a key and nothing of the product's own side of hosts: what they
send is what a test says, byte by byte if need be.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from forewarn import settings
from forewarn.api.connection_limits import PortLimits
from forewarn.ports import Clock
from forewarn.settings import Settings
from forewarn.wire import link as wire
from forewarn.wiring.control import ControlService, ControlWhere, open_control

T = TypeVar("T")

LIMIT_S = 60.0
QUICK = {
    "FOREWARN_DOMAIN_RECOVERY_SECONDS": "0",
    "FOREWARN_ENABLEMENT": "always",
}
VERSION = {wire.VERSION_HEADER: wire.LINK_VERSION}


@dataclass
class Machine:
    """A hypervisor as the link sees it: a name, a key, and once it has joined a certificate."""

    url: str
    folder: Path
    name: str
    authority: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())

    def request(self, name: str | None = None) -> str:
        """A certificate signing request for its name, or for another."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name or self.name)])
        built = x509.CertificateSigningRequestBuilder().subject_name(subject)
        made = built.sign(self.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()

    async def learn_authority(self) -> str:
        """What anybody may ask for, before there is anybody to trust."""
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname = False
        blind.verify_mode = ssl.CERT_NONE
        async with httpx.AsyncClient(verify=blind, trust_env=False) as client:
            answer = await client.get(f"{self.url}/link/authority")
        assert answer.status_code == 200
        self.authority = answer.text
        return answer.text

    async def ask_to_join(self, token: str, **more: str) -> httpx.Response:
        """Say /link/join; nothing is made of the answer."""
        if not self.authority:
            await self.learn_authority()
        body = {"name": self.name, "token": token, "request": self.request(), **more}
        async with httpx.AsyncClient(verify=self.trusting(), trust_env=False) as client:
            return await client.post(
                f"{self.url}/link/join", content=msgspec.json.encode(body), headers=VERSION
            )

    async def join(self, token: str) -> Machine:
        """Join and keep the certificate."""
        answer = await self.ask_to_join(token)
        assert answer.status_code == 200, answer.text
        self.keep(answer.json()["certificate"])
        return self

    def keep(self, certificate: str) -> None:
        """Speak with this certificate from now on."""
        private = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (self.folder / "host.pem").write_bytes(private + certificate.encode())

    def trusting(self, *, shown: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority)
        if shown:
            context.load_cert_chain(self.folder / "host.pem")
        return context

    async def say(
        self,
        name: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> httpx.Response:
        """One question, on a connection of its own."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        shown = self.trusting(shown=(self.folder / "host.pem").exists())
        async with httpx.AsyncClient(verify=shown, trust_env=False, timeout=LIMIT_S) as client:
            return await client.request(
                method,
                f"{self.url}/link/{name}",
                content=content,
                headers=VERSION if headers is None else dict(headers),
            )

    async def ask(self, name: str, body: object, kind: type[T]) -> T:
        """One question that is answered."""
        answer = await self.say(name, body)
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=kind)

    async def refused(self, name: str, body: object) -> tuple[int, str]:
        """One question that is not: the status and the code of the problem."""
        answer = await self.say(name, body)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["code"]

    async def changes(self, since: wire.Since | None = None, wait_s: int = 0) -> wire.Changes:
        return await self.ask("changes", wire.AskChanges(since, wait_s), wire.Changes)


@dataclass
class ControlWorld:
    """A running control plane."""

    service: ControlService
    where: ControlWhere
    folder: Path

    def machine(self, name: str, folder: str | None = None) -> Machine:
        return Machine(self.where.hosts_url, self.folder / (folder or f"machine-{name}"), name)

    async def token(self, name: str) -> str:
        """A one-time token for a host."""
        return await self.service.membership.invite(name)

    async def joined(self, name: str) -> Machine:
        """A machine that the operator has invited, that has joined and asked what it shows."""
        machine = await self.machine(name).join(await self.token(name))
        await machine.changes()
        return machine

    async def operator(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        trusted: ssl.SSLContext | None = None,
    ) -> httpx.Response:
        """One request of the operator, or with another token of another caller."""
        token = token or (self.where.data / "operator.token").read_text().strip()
        verify = trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts none
        async with httpx.AsyncClient(verify=verify, trust_env=False, timeout=LIMIT_S) as client:
            return await client.request(
                method,
                f"{self.where.operator_url}{path}",
                content=None if body is None else msgspec.json.encode(body),
                headers={"Authorization": f"Bearer {token}"},
            )

    async def order(self, path: str, body: object = None) -> Any:
        answer = await self.operator("POST", path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()


def chosen_settings(
    folder: Path, fleet: str | None, options: Mapping[str, str], written: str = ""
) -> Settings:
    """A data folder under `folder`, free ports of loopback, and what a test wants beside.

    `written` is a settings file.
    """
    folder.mkdir(exist_ok=True)
    given = {"data": str(folder / "control"), "operator": "127.0.0.1:0", "hosts": "127.0.0.1:0"}
    if fleet is not None:
        (folder / "inventory.toml").write_text(fleet, encoding="utf-8")
        given["inventory"] = str(folder / "inventory.toml")
    environment = {"HOME": str(folder), **QUICK}
    file = folder / "control.toml" if written else None
    if file is not None:
        file.write_text(written, encoding="utf-8")
    return settings.load(file=file, environment=environment, options={**given, **options})


@asynccontextmanager
async def control_running(
    folder: Path,
    *,
    fleet: str | None = None,
    clock: Clock | None = None,
    lease_clock: Clock | None = None,
    limits: PortLimits | None = None,
    written: str = "",
    **options: str,
) -> AsyncIterator[ControlWorld]:
    """A control plane in this process. Whatever happens, it is stopped at the end."""
    service = open_control(
        chosen_settings(folder, fleet, options, written),
        clock=clock,
        lease_clock=lease_clock,
        limits=limits,
    )
    listening = asyncio.Event()
    said: list[ControlWhere] = []

    def started(where: ControlWhere) -> None:
        said.append(where)
        listening.set()

    running = asyncio.ensure_future(service.run(started))
    waiting = asyncio.ensure_future(listening.wait())
    try:
        await asyncio.wait({running, waiting}, return_when="FIRST_COMPLETED", timeout=LIMIT_S)
        if running.done():
            running.result()
        yield ControlWorld(service, said[0], folder)
    finally:
        waiting.cancel()
        service.stop()
        await asyncio.wait_for(running, LIMIT_S)


def run(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a story to its end, within a limit."""

    async def main() -> T:
        async with asyncio.timeout(3 * LIMIT_S):
            return await story()

    return asyncio.run(main())
