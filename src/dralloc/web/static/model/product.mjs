// What a device is called in a shop: the same rule as `dralloc.devices.identity`.

// In the order of preference; a domain before the name does not matter.
const PRODUCT_ATTRIBUTES = ["productName", "model", "product"];

/** Returns the name of the product; empty if the driver publishes none. */
export function productOf({ attributes }) {
  const named = new Map(Object.entries(attributes ?? {}).map(([name, { string }]) => [name.slice(name.lastIndexOf("/") + 1), string]));
  return PRODUCT_ATTRIBUTES.map((name) => named.get(name)).find((value) => typeof value === "string" && value !== "") ?? "";
}
