// Kubernetes quantities, exactly: a number of nanos and the notation to print it in.
//
// The same rules as `dralloc.primitives.quantity`; a test compares the two.

export const NANOS = 1_000_000_000n;
const INT64_MAX = 2n ** 63n - 1n;
// The API rejects larger numbers; the page must not freeze on them.
const EXPONENT_MAX = 4000;

const DECIMAL = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const BINARY = { Ki: 10n, Mi: 20n, Gi: 30n, Ti: 40n, Pi: 50n, Ei: 60n };
const DECIMAL_SUFFIX = Object.fromEntries(Object.entries(DECIMAL).map(([suffix, exponent]) => [exponent, suffix]));
const BINARY_SUFFIX = ["", ...Object.keys(BINARY)];
const PATTERN = /^([+-]?)([0-9]*)(?:\.([0-9]*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?[0-9]+)$/;

const ZERO = Object.freeze({ nanos: 0n, format: "decimal" });

// Devices of one model repeat the same few texts.
const known = new Map();
const KNOWN_MAX = 20_000;

/** Parses a quantity; an invalid text counts as 0. */
export function parseQuantity(text) {
  let quantity = known.get(text);
  if (quantity === undefined) {
    if (known.size >= KNOWN_MAX) known.clear();
    quantity = Object.freeze(parse(String(text ?? "")));
    known.set(text, quantity);
  }
  return quantity;
}

function parse(text) {
  const match = PATTERN.exec(text);
  if (!match || text === "" || text.length > EXPONENT_MAX) return ZERO;
  const [, sign, whole, fraction = "", suffix] = match;
  const mantissa = BigInt(whole + fraction || "0");
  let format = "decimal";
  let nanos;
  if (suffix in BINARY) {
    nanos = dividedUp(mantissa * (NANOS << BINARY[suffix]), 10n ** BigInt(fraction.length));
    if (nanos > INT64_MAX * NANOS) nanos = INT64_MAX * NANOS;
    format = nanos > 0n && nanos < NANOS ? "decimal" : "binary";
  } else {
    const isExponent = /^[eE]./.test(suffix);
    const exponent = (isExponent ? Number(suffix.slice(1)) : DECIMAL[suffix]) - fraction.length + 9;
    if (Math.abs(exponent) > EXPONENT_MAX) return ZERO;
    nanos = exponent >= 0 ? mantissa * 10n ** BigInt(exponent) : dividedUp(mantissa, 10n ** BigInt(-exponent));
    format = isExponent ? "exponent" : "decimal";
  }
  return { nanos: sign === "-" ? -nanos : nanos, format };
}

/** Returns the canonical text. */
export function printQuantity({ nanos, format }) {
  if (nanos === 0n) return "0";
  if (format === "binary" && absolute(nanos) >= 1024n * NANOS && nanos % NANOS === 0n) {
    const [mantissa, power] = withoutFactor(nanos / NANOS, 1024n);
    return `${mantissa}${BINARY_SUFFIX[power] ?? ""}`;
  }
  const [digits, zeros] = withoutFactor(nanos, 10n);
  const places = (((zeros - 9) % 3) + 3) % 3;
  const mantissa = digits * 10n ** BigInt(places);
  const exponent = zeros - 9 - places;
  if (format === "exponent") return exponent ? `${mantissa}e${exponent}` : `${mantissa}`;
  return `${mantissa}${DECIMAL_SUFFIX[exponent] ?? ""}`;
}

/** Returns the amount in the notation of the model: 24Gi instead of 25769803776 if the model is 40Gi. */
export function quantityLike(model, nanos) {
  return { nanos, format: model.nanos ? model.format : "decimal" };
}

/** Returns a rounded amount: the canonical texts of large totals are unreadable. */
export function roughly({ nanos, format }) {
  const base = format === "binary" ? 1024n : 1000n;
  const suffixes = format === "binary" ? BINARY_SUFFIX : ["", "k", "M", "G", "T", "P", "E"];
  const exact = printQuantity({ nanos, format });
  if (nanos < NANOS * base) return exact;
  let power = 0;
  let unit = NANOS;
  while (power + 1 < suffixes.length && nanos >= unit * base) {
    unit *= base;
    power += 1;
  }
  const tenths = Number((nanos * 10n) / unit);
  const rough = tenths < 1000 ? (tenths / 10).toString() : Math.floor(tenths / 10).toString();
  return `${rough}${suffixes[power]}`;
}

/** Returns the fraction from 0 to 1, for widths. */
export function ratio(part, whole) {
  return whole > 0n ? Math.min(1, Math.max(0, Number((part * 10_000n) / whole) / 10_000)) : 0;
}

/** A fraction from 0 to 1 as a percentage: rounded, but 100 only for all of it, and 0 only for nothing. */
export function percent(fraction) {
  if (fraction <= 0) return 0;
  return fraction >= 1 ? 100 : Math.min(99, Math.max(1, Math.round(fraction * 100)));
}

export function dividedUp(number, divisor) {
  const quotient = number / divisor;
  return number % divisor > 0n ? quotient + 1n : quotient;
}

export function dividedDown(number, divisor) {
  const quotient = number / divisor;
  return number % divisor < 0n ? quotient - 1n : quotient;
}

function absolute(number) {
  return number < 0n ? -number : number;
}

function withoutFactor(number, factor) {
  let count = 0;
  while (number % factor === 0n) {
    number /= factor;
    count += 1;
  }
  return [number, count];
}
