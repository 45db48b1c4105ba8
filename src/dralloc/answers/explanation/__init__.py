"""Why a pod is placed or not: the verdicts of nodes, with reasons, and the changes after which it is placed."""
