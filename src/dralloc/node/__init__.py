"""The node agent: registers drivers, prepares claims, runs pods and reports their status."""
