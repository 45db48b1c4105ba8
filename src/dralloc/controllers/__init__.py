"""What keeps the cluster as its objects say: each controller plans from values (`plan*.py`) and applies (`controller.py`)."""
