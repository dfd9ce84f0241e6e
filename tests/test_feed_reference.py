"""docs/feed.md has every type of the feed and every field, as the code has them."""

from __future__ import annotations

from feed_reference import PAGE, REGENERATE, fields_of, refreshed
from forewarn.core.facts import DETAILS
from forewarn.core.model import FactKind
from forewarn.wire.cloud_events import TYPE_PREFIX, schema_names


def test_the_page_of_the_feed_says_what_the_code_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == refreshed(page), f"docs/feed.md is stale; run `{REGENERATE}`."


def test_every_type_kind_and_field_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in schema_names():
        assert f"| `{TYPE_PREFIX}{name}` |" in page
    for kind in FactKind:
        says = page.partition(f"\n- `{kind.value}`: ")[2].partition("\n- ")[0]
        assert says, kind
        fields = DETAILS[kind].__struct_encode_fields__
        assert [name for name in fields if f"`{name}` (" not in says] == []
        assert len(list(fields_of(DETAILS[kind]))) == len(fields)
