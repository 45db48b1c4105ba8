"""The node's side of device allocation: drivers register here, claims are prepared, pods run and end."""
