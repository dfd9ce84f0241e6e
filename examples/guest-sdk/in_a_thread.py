"""A program that works on while a thread of it listens. `may_work` is all that the two share."""

import threading
import time

from forewarn_guest import Client

may_work = threading.Event()
may_work.set()


def listen(client: Client) -> None:
    for document in client.documents():
        ours = [event for event in document.events if event.names(client.me())]
        if ours:
            may_work.clear()
            client.approve(*(event.event_id for event in ours if not event.started))
        else:
            may_work.set()


with Client() as client:
    threading.Thread(target=listen, args=(client,), daemon=True).start()
    while True:
        print("working" if may_work.is_set() else "drained", flush=True)
        may_work.wait()
        time.sleep(0.1)  # a piece of work
