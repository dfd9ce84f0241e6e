"""The same in asyncio: the client waits in a thread, so the event loop never does."""

import asyncio

from forewarn_guest import Client


async def main() -> None:
    with Client() as client:  # leaving it, also by cancellation, ends the thread
        me, changes = await asyncio.to_thread(client.me), client.watch()
        while change := await asyncio.to_thread(next, changes, None):
            if change.event.names(me) and change.what == "appeared":
                print(f"draining: {change.event.event_type}", flush=True)
                await asyncio.to_thread(client.approve, change.event.event_id)
            elif change.event.names(me) and change.what == "gone":
                print("working again", flush=True)


asyncio.run(main())
