"""The contract between a kubelet and the DRA drivers on its node, for both sides: CDI files, sockets, atomic files, pool plans."""
