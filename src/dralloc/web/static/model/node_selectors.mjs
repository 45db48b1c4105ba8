// The nodes of a slice, or of a device with its own node selection, by the rules of node affinity.

/** True if the node can use what is placed (a slice's spec, or a device). */
export function isPlacedOn(placed, node) {
  if (placed.nodeName) return placed.nodeName === node.name;
  if (placed.allNodes) return true;
  return placed.nodeSelector ? selects(placed.nodeSelector, node) : false;
}

function selects(selector, node) {
  // An empty term matches nothing.
  return (selector.nodeSelectorTerms ?? []).some(
    (term) =>
      (term.matchExpressions?.length || term.matchFields?.length) &&
      (term.matchExpressions ?? []).every((requirement) => labelMatches(requirement, node.labels[requirement.key])) &&
      (term.matchFields ?? []).every((requirement) => fieldMatches(requirement, node)),
  );
}

function labelMatches({ operator, values = [] }, value) {
  switch (operator) {
    case "In":
      return value !== undefined && values.includes(value);
    case "NotIn":
      return value === undefined || !values.includes(value);
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    case "Gt":
      return isInteger(value) && BigInt(value) > BigInt(values[0]);
    case "Lt":
      return isInteger(value) && BigInt(value) < BigInt(values[0]);
    default:
      return false;
  }
}

function fieldMatches({ key, operator, values = [] }, node) {
  const value = key === "metadata.name" ? node.name : "";
  return values.includes(value) === (operator === "In");
}

function isInteger(text) {
  return text !== undefined && /^[+-]?[0-9]{1,19}$/.test(text);
}
