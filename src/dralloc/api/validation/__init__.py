"""Faults of objects, one module a kind. Every function yields all the faults it finds and raises nothing.

Kubernetes judges an object twice: by rules written by hand, in the hub's shape, and by rules declared on the
types of the version that was asked for. Where both find a fault, the declared rule's report stands. In v1beta1
the two spell some paths differently (`requests[0].exactly.count`, but `requests[0].allocationMode`), so a
validator that meets such a place is given both paths: `path`, and `declared` for what declared rules report.
"""
