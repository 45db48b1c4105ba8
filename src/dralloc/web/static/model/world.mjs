// The page's model of the cluster, updated incrementally.
//
// A change only recomputes the pool that it touches. Of pods and nodes only the displayed fields are kept, because there
// may be tens of thousands.

import { summariesOf } from "./grouping.mjs";
import { collator } from "./names.mjs";
import { Pool } from "./pools.mjs";
import { podOf } from "./pods.mjs";
import { TaintRules, taintText } from "./taint_rules.mjs";

const CAPACITIES_MAX = 10_000;

export class World {
  constructor() {
    this.nodes = new Map();
    this.slices = new Map();
    this.claims = new Map();
    this.pods = new Map();
    this.classes = new Map();
    this.rules = new TaintRules();
    this.pools = new Map();
    // Incremented with every change, to invalidate caches.
    this.version = 0;
    // Incremented when nodes, their labels, or their pools change.
    this.layoutVersion = 0;
    this.poolsByNode = new Map();
    // By kind and key: why the page cannot read the object.
    this.unreadable = new Map();
    this._unsettled = new Set();
    this._capacities = new Map();
  }

  /** Adds or updates an object. One that is not of the form of its kind is kept as a fault: the rest of the cluster stays visible. */
  put(kind, object) {
    this.version += 1;
    const key = keyOf(object);
    try {
      this[`_put_${kind}`](key, object);
      this.unreadable.delete(`${kind} ${key}`);
    } catch (error) {
      this[`_remove_${kind}`](key);
      this.unreadable.set(`${kind} ${key}`, error.message);
    }
  }

  /** Removes an object. */
  remove(kind, key) {
    this.version += 1;
    this.unreadable.delete(`${kind} ${key}`);
    this[`_remove_${kind}`](key);
  }

  /** Recomputes what changed, in small steps before drawing. */
  settle() {
    for (const pool of this._unsettled) pool.reports(this.nodes, this.rules).forEach(summariesOf);
    this._unsettled.clear();
  }

  /** Returns the keys of all objects of a kind. */
  keys(kind) {
    return [...(kind === "rules" ? this.rules.byName : this[kind]).keys()];
  }

  /** Pools by node; "" stands for pools of several nodes. */
  reportsOfNode(node) {
    const reports = [];
    for (const pool of this.poolsByNode.get(node) ?? []) {
      for (const report of pool.reports(this.nodes, this.rules)) if (report.node === node) reports.push(report);
    }
    return reports.sort((one, other) => collator.compare(one.driver, other.driver) || collator.compare(one.pool, other.pool));
  }

  /** Returns the device with its report; undefined if neither a slice nor a claim has it. */
  device(driver, pool, name) {
    for (const report of this.pools.get(poolKey(driver, pool))?.reports(this.nodes, this.rules) ?? []) {
      const device = report.devices.find((each) => each.name === name);
      if (device) return { report, device };
    }
    return undefined;
  }

  // --- Nodes ----------------------------------------------------------------------------------------------------

  _put_nodes(key, object) {
    const before = this.nodes.get(key);
    const ready = (object.status?.conditions ?? []).find(({ type }) => type === "Ready");
    this.nodes.set(key, {
      name: key,
      labels: object.metadata.labels ?? {},
      isReady: !ready || ready.status === "True",
      isCordoned: Boolean(object.spec?.unschedulable),
      closed: whyClosed(object.spec ?? {}),
    });
    const node = this.nodes.get(key);
    if (!before || before.closed !== node.closed || !sameLabels(before.labels, node.labels)) this._nodesChanged(key);
  }

  _remove_nodes(key) {
    this.nodes.delete(key);
    this._nodesChanged(key);
  }

  _nodesChanged(name) {
    this.layoutVersion += 1;
    // With the first node it is known which nodes do not exist.
    const isFirstOrLast = this.nodes.size <= 1;
    const pools = isFirstOrLast ? [...this.pools.values()] : [...(this.poolsByNode.get("") ?? []), ...(this.poolsByNode.get(name) ?? [])];
    for (const pool of pools) {
      pool.changed();
      this._unsettled.add(pool);
    }
  }

  // --- Slices ---------------------------------------------------------------------------------------------------

  _put_slices(key, object) {
    const before = this.slices.get(key);
    const { driver, pool: poolOfSlice } = object.spec;
    const devices = object.spec.devices ?? [];
    const slice = { name: key, spec: object.spec };
    if (![driver, poolOfSlice.name, object.spec.nodeName ?? ""].every(isText)) throw new TypeError("its spec names no driver, pool or node");
    if (!devices.every(({ name }) => isText(name))) throw new TypeError("a device of it has no name");
    for (const device of devices) if (device.capacity) device.capacity = this._one(device.capacity);
    if (before && poolKeyOf(before) !== poolKeyOf(slice)) this._remove_slices(key);
    this.slices.set(key, slice);
    const pool = this._pool(driver, poolOfSlice.name);
    pool.slices.set(key, slice);
    this._poolChanged(pool);
  }

  /** Interns equal capacities. */
  _one(capacity) {
    const text = JSON.stringify(capacity);
    if (this._capacities.size >= CAPACITIES_MAX) this._capacities.clear();
    if (!this._capacities.has(text)) this._capacities.set(text, capacity);
    return this._capacities.get(text);
  }

  _remove_slices(key) {
    const slice = this.slices.get(key);
    if (!slice) return;
    this.slices.delete(key);
    const pool = this.pools.get(poolKeyOf(slice));
    pool.slices.delete(key);
    this._poolChanged(pool);
  }

  _pool(driver, name) {
    const key = poolKey(driver, name);
    let pool = this.pools.get(key);
    if (!pool) this.pools.set(key, (pool = new Pool(driver, name)));
    return pool;
  }

  /** Indexes the pool by its nodes. */
  _poolChanged(pool) {
    pool.changed();
    this._unsettled.add(pool);
    const nodes = new Set();
    for (const { spec } of pool.slices.values()) nodes.add(spec.nodeName ?? "");
    // Devices that are gone are shown with those of several nodes.
    if (pool.holdings.size) nodes.add("");
    for (const node of pool.filedUnder ?? []) {
      if (nodes.has(node)) continue;
      const pools = this.poolsByNode.get(node);
      pools.delete(pool);
      if (!pools.size) this.poolsByNode.delete(node);
      this.layoutVersion += 1;
    }
    for (const node of nodes) {
      if (pool.filedUnder?.has(node)) continue;
      if (!this.poolsByNode.has(node)) this.poolsByNode.set(node, new Set());
      this.poolsByNode.get(node).add(pool);
      this.layoutVersion += 1;
    }
    pool.filedUnder = nodes;
    if (pool.isEmpty) this.pools.delete(poolKey(pool.driver, pool.name));
  }

  // --- Claims ---------------------------------------------------------------------------------------------------

  _put_claims(key, object) {
    this._release(this.claims.get(key));
    const { name, namespace, uid, creationTimestamp, deletionTimestamp, ownerReferences, annotations } = object.metadata;
    const claim = {
      key, name, namespace, uid, creationTimestamp, deletionTimestamp, ownerReferences, annotations,
      spec: object.spec ?? {},
      status: object.status ?? {},
    };
    checkClaim(claim);
    this.claims.set(key, claim);
    for (const result of resultsOf(claim)) {
      const pool = this._pool(result.driver, result.pool);
      pool.hold(result.device, { claim, result });
      this._poolChanged(pool);
    }
  }

  _remove_claims(key) {
    this._release(this.claims.get(key));
    this.claims.delete(key);
  }

  _release(claim) {
    for (const result of claim ? resultsOf(claim) : []) {
      const pool = this.pools.get(poolKey(result.driver, result.pool));
      // A claim with several shares of one device releases all of them at the first.
      if (!pool) continue;
      pool.release(result.device, claim);
      this._poolChanged(pool);
    }
  }

  // --- The rest -------------------------------------------------------------------------------------------------

  _put_pods(key, object) {
    this.pods.set(key, podOf(key, object));
  }

  _remove_pods(key) {
    this.pods.delete(key);
  }

  _put_classes(key, object) {
    this.classes.set(key, { name: key, spec: object.spec ?? {} });
  }

  _remove_classes(key) {
    this.classes.delete(key);
  }

  _put_rules(key, object) {
    const { taint, deviceSelector } = object.spec;
    this.rules.set(key, { taint: { ...taint }, deviceSelector });
    this._rulesChanged();
  }

  _remove_rules(key) {
    this.rules.delete(key);
    this._rulesChanged();
  }

  _rulesChanged() {
    for (const pool of this.pools.values()) pool.changed();
  }
}

export function keyOf({ metadata: { name, namespace } }) {
  return namespace ? `${namespace}/${name}` : name;
}

export function resultsOf({ status }) {
  return resultsIn(status);
}

/** Returns the nodes that the allocation is restricted to by name. */
export function nodesOf(claim) {
  const terms = claim.status.allocation?.nodeSelector?.nodeSelectorTerms ?? [];
  return terms.flatMap(({ matchFields = [] }) =>
    matchFields.flatMap(({ key, operator, values = [] }) => (key === "metadata.name" && operator === "In" ? values : [])),
  );
}

/** Raises an error unless what names devices and users is in lists of objects. */
function checkClaim({ spec, status }) {
  const requests = spec.devices?.requests ?? [];
  const lists = [requests, spec.devices?.constraints ?? [], status.reservedFor ?? [], status.devices ?? [], resultsIn(status)];
  lists.push(...requests.map(({ exactly, firstAvailable }) => firstAvailable ?? [exactly]));
  if (!lists.every((list) => list.every((each) => each instanceof Object))) throw new TypeError("a list of it has something else than objects");
  if (!requests.every(({ name }) => isText(name))) throw new TypeError("a request of it has no name");
  for (const { request, device, pool, driver } of resultsIn(status)) {
    if (![request, device, pool, driver].every(isText)) throw new TypeError("a result of its allocation names no device");
  }
  if (!nodesOf({ status }).every(isText)) throw new TypeError("its allocation names no node");
}

function isText(value) {
  return typeof value === "string";
}

function resultsIn(status) {
  return status.allocation?.devices?.results ?? [];
}

function poolKey(driver, pool) {
  return `${driver}/${pool}`;
}

function poolKeyOf({ spec }) {
  return poolKey(spec.driver, spec.pool.name);
}

/** Why a node takes no pods without tolerations; empty if it does. */
function whyClosed({ unschedulable, taints }) {
  if (unschedulable) return "node is unschedulable";
  const repelling = (taints ?? []).filter(({ effect }) => effect === "NoSchedule" || effect === "NoExecute");
  return repelling.length ? `node has taint ${repelling.map(taintText).join(", ")}` : "";
}

function sameLabels(one, other) {
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name]);
}
