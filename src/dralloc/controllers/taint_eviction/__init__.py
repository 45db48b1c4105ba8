"""Evicts pods whose devices have NoExecute taints that they do not tolerate, and reports progress in the rules' statuses."""
