"""Why a node cannot serve claims: `Diagnoser.reason` for one node, `availability` for many nodes in one line.

The scheduler's messages and `whatif.explanation` are made of these reasons.
"""
