// Order of names.

// node-2 before node-10.
export const collator = new Intl.Collator("en", { numeric: true });

export function compared(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}
