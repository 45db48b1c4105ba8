"""The conformance kit: puts a driver, in any language, to the questions that a node would ask it, and judges the answers."""
