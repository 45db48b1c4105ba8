"""Claims for pods: made from templates, recorded in the pod's status, reserved for pods that got a node without them."""
