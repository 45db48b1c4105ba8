"""The streaming server of a node agent: logs, exec, attach and port-forward, as a kubelet serves them to its API server."""
