"""One attempt to place one pod, as a pure function: a view of the cluster and a pod in, a decision out."""
