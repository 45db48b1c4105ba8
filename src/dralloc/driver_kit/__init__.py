"""The conformance kit for DRA drivers: `dralloc driver-test` calls a driver as a kubelet does and checks the contract."""
