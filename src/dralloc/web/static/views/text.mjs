// Texts that several views share.

export function counted(number, noun, nouns = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : nouns}`;
}

/** What a claim has of a device: the amounts of its share, or all of it. */
export function shareText(result) {
  const amounts = Object.entries(result.consumedCapacity ?? {}).map(([name, amount]) => `${amount} of ${name}`);
  for (const [name, limit] of Object.entries(result.capacityLimits ?? {})) amounts.push(`up to ${limit} of ${name}`);
  if (result.adminAccess) amounts.push("admin access");
  return amounts.join(", ") || (result.shareID ? "a share" : "the whole device");
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
