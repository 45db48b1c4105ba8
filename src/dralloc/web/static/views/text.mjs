// Texts that several views share.

export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** Returns the age in kubectl's format: 45s, 12m, 3h, 5d. */
export function age(timestamp, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - Date.parse(timestamp)) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

export function attributeText(attribute) {
  const value = Object.values(attribute)[0];
  return Array.isArray(value) ? value.join(", ") : String(value);
}
