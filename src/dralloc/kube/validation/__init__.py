"""Validation, one module for each kind. Every function yields all field errors and raises nothing.

Kubernetes validates an object twice: with handwritten rules, in the hub's shape, and with rules declared on the types
of the requested version. Where both find an error, the declared rule's is reported. In v1beta1 the two spell some paths
differently (`requests[0].exactly.count`, but `requests[0].allocationMode`), so a validator for such fields takes both
paths: `path`, and `declared` for errors of declared rules.
"""
