"""The packet filter of this host: the program nft, with a time limit. Knows no rule of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from forewarn.adapters.iproute2 import run_command


class NftRules:
    """See `ports.PacketRules`."""

    async def sets(self, table: str) -> Mapping[str, Sequence[object]] | None:
        said = json.loads(await run_command("nft", "-j", "list", "tables"))
        tables = [item["table"] for item in said.get("nftables", []) if "table" in item]
        if not any(one["family"] == "inet" and one["name"] == table for one in tables):
            return None
        said = json.loads(await run_command("nft", "-j", "list", "table", "inet", table))
        found = [item["set"] for item in said.get("nftables", []) if "set" in item]
        return {one["name"]: one.get("elem", []) for one in found}

    async def apply(self, text: str) -> None:
        await run_command("nft", "-f", "-", given=text)
