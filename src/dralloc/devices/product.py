"""What a device is called in a shop: the attribute that names its model. There is no standard attribute for it."""

from __future__ import annotations

from typing import Final

from dralloc.api.resource_v1 import Device

# In the order of preference; a domain before the name does not matter.
PRODUCT_ATTRIBUTES: Final = ("productName", "model", "product")


def product_of(device: Device) -> str:
    """The name of the product; empty if the driver publishes none."""
    named = {name.rpartition("/")[2]: each.string for name, each in device.attributes.items() if each.string}
    return next((named[name] for name in PRODUCT_ATTRIBUTES if name in named), "")
