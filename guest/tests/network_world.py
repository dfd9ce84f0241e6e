"""A VM and its host in two network namespaces; run by test_network.py in a namespace of its own.

`python network_world.py PLAY` is the VM: it makes a cable, starts itself as the host at the other
end, plays, and prints what came of it as one line of JSON. It touches no network but its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from forewarn_guest import dhcp
from forewarn_guest.client import Client
from forewarn_guest.discovery import discover
from forewarn_guest.errors import EndpointError
from forewarn_guest.http1 import Bell, Stop, Stopped, bell_of

HOST = "10.99.0.1"
VM = "10.99.0.2"
LONG_S = 200  # nothing of these plays is waited for so long, unless in vain
NOT_HERE = 77  # the machine cannot do this


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL, timeout=60)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# The host.


class Handler(BaseHTTPRequestHandler):
    """Answers with an empty document; never answers who waits."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Prefer"):
            say("waiting")
            threading.Event().wait()
        body = b'{"DocumentIncarnation":1,"Events":[]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def serve_dhcp() -> None:
    """Offers the VM its address and option 245: by broadcast if asked to, else to the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"cable1\0")
        server.bind(("", 67))
        while True:
            asked = server.recv(1024)
            options = b"\x35\x01\x02" + b"\xf5\x04" + socket.inet_aton(HOST) + b"\xff"
            head = bytes([2, 1, 6, 0]) + asked[4:16] + socket.inet_aton(VM) + bytes(8)
            answer = head + asked[28:44] + bytes(192) + asked[236:240] + options
            server.sendto(answer, ("255.255.255.255" if asked[10] & 0x80 else VM, 68))


def be_host() -> None:
    say("here")
    sys.stdin.readline()  # the cable is plugged in
    ip("link", "set", "cable1", "up")
    ip("address", "add", f"{HOST}/24", "dev", "cable1")
    server = HTTPServer((HOST, 80), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=serve_dhcp, daemon=True).start()
    say("serving")
    sys.stdin.readline()  # vanish
    ip("address", "delete", f"{HOST}/24", "dev", "cable1")
    say("vanished")
    sys.stdin.readline()


# The VM.


def heard(host: subprocess.Popen[str], word: str) -> None:
    assert host.stdout is not None
    line = host.stdout.readline().strip()
    assert line == word, line


def tell(host: subprocess.Popen[str]) -> None:
    assert host.stdin is not None
    host.stdin.write("go\n")
    host.stdin.flush()


def play_discover(_: subprocess.Popen[str]) -> Any:
    ip("address", "add", f"{VM}/24", "dev", "cable0")
    found = discover(environment={})
    return {"url": found.url, "tries": [[one.source, one.outcome] for one in found.tries]}


def play_broadcast(_: subprocess.Popen[str]) -> Any:
    """The VM has no address yet, so an answer to its address cannot reach it."""
    with bell_of() as bell:
        answers = dhcp.ask(dhcp.interfaces(), b"abcd", bell, seconds=LONG_S)
    return {
        "interfaces": [one.name for one in dhcp.interfaces()],
        "heard": [[one.interface, one.address] for one in answers],
    }


def play_silence(_: subprocess.Popen[str]) -> Any:
    """No server answers from the other end of a cable that nobody listens at."""
    ip("link", "set", "unplugged", "up")
    ip("link", "set", "loose", "up")
    asked = [one for one in dhcp.interfaces() if one.name == "unplugged"]
    stop, began = Stop(), time.monotonic()
    with bell_of(stop) as bell:
        answers = dhcp.ask(asked, b"abcd", bell, seconds=1.5)
        waited = time.monotonic() - began
        thread = threading.Timer(0.2, stop.set)
        thread.start()
        stopped = _stops(asked, bell)
        thread.join()
    return {
        "why": [one.why for one in answers],
        "seconds": waited,
        "stopped": stopped,
    }


def _stops(asked: list[dhcp.Interface], bell: Bell) -> bool:
    try:
        dhcp.ask(asked, b"abcd", bell, seconds=LONG_S)
    except Stopped:
        return True
    return False


def play_vanish(host: subprocess.Popen[str]) -> Any:
    """The endpoint is gone without a word while the client waits for news."""
    ip("address", "add", f"{VM}/24", "dev", "cable0")
    client = Client(f"http://{HOST}", wait_s=LONG_S)
    told: list[str] = []

    def trouble(_: EndpointError) -> None:
        told.append("noticed")
        client.close()

    def vanish() -> None:
        heard(host, "waiting")
        told.append("vanishes")
        tell(host)
        heard(host, "vanished")

    thread = threading.Thread(target=vanish, daemon=True)
    thread.start()
    for _ in client.documents(on_trouble=trouble):
        pass
    thread.join(60)
    return told


PLAYS = {
    "discover": play_discover,
    "broadcast": play_broadcast,
    "silence": play_silence,
    "vanish": play_vanish,
}


def be_vm(play: str) -> int:
    try:
        ip("link", "set", "lo", "up")
        ip("link", "add", "unplugged", "type", "veth", "peer", "name", "loose")
        ip("link", "add", "cable0", "type", "veth", "peer", "name", "cable1")
    except (OSError, subprocess.CalledProcessError) as error:
        say(str(error))
        return NOT_HERE
    with subprocess.Popen(
        ["unshare", "--net", sys.executable, str(Path(__file__).resolve()), "host"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        try:
            heard(host, "here")
            ip("link", "set", "cable1", "netns", str(host.pid))
            ip("link", "set", "cable0", "up")
            tell(host)
            heard(host, "serving")
            say(json.dumps(PLAYS[play](host)))
        finally:
            host.kill()
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "host":
        be_host()
    else:
        sys.exit(be_vm(sys.argv[1]))
