// Taints of devices from slices and DeviceTaintRules. A rule with an empty selector taints every device, one without a selector none.

import { compared } from "./names.mjs";

export class TaintRules {
  constructor() {
    this.byName = new Map();
  }

  set(name, spec) {
    this.byName.set(name, spec);
  }

  delete(name) {
    this.byName.delete(name);
  }

  taintsOf(driver, pool, device) {
    if (!this.byName.size) return NONE;
    return [...this.byName]
      .filter(([, { deviceSelector }]) => deviceSelector && names(deviceSelector, driver, pool, device))
      .sort(([one], [other]) => compared(one, other))
      .map(([, { taint }]) => taint);
  }
}

const NONE = Object.freeze([]);

function names(selector, driver, pool, device) {
  return (
    (selector.driver ?? driver) === driver && (selector.pool ?? pool) === pool && (selector.device ?? device) === device
  );
}

export function taintText({ key, value, effect }) {
  return `${key}${value ? `=${value}` : ""}:${effect}`;
}
