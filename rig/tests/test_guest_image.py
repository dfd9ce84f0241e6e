"""What is put into the image of guests, in the order in which they load it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig.guest_image import load_order
from rig.needs import CannotBuild


def test_each_module_is_loaded_after_what_it_needs_as_the_kernel_says_it(tmp_path: Path) -> None:
    (tmp_path / "modules.builtin").write_text("kernel/drivers/acpi/button.ko\n")
    (tmp_path / "modules.dep").write_text(
        "kernel/virtio_pci.ko.xz: kernel/modern.ko.xz kernel/virtio.ko.xz kernel/ring.ko.xz\n"
        "kernel/virtio.ko.xz: kernel/ring.ko.xz\n"
        "kernel/modern.ko.xz:\n"
        "kernel/ring.ko.xz:\n"
        "kernel/virtio_net.ko.xz: kernel/virtio.ko.xz kernel/ring.ko.xz\n"
    )
    assert load_order(tmp_path, ("virtio_pci", "virtio_net", "button")) == [
        "kernel/ring.ko.xz",
        "kernel/virtio.ko.xz",
        "kernel/modern.ko.xz",
        "kernel/virtio_pci.ko.xz",
        "kernel/virtio_net.ko.xz",
    ]
    with pytest.raises(CannotBuild, match="no module evdev"):
        load_order(tmp_path, ("evdev",))
