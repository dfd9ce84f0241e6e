"""A plain program that gets out of the way: it drains, says go ahead, and comes back."""

from forewarn_guest import Client

with Client() as client:
    me = client.me()
    for change in client.watch():
        if not change.event.names(me):
            continue
        if change.what == "appeared" and not change.event.started:
            print(f"draining: {change.event.event_type} in {change.seconds_left} s", flush=True)
            client.approve(change.event.event_id)
        elif change.what == "gone":
            print("working again", flush=True)
