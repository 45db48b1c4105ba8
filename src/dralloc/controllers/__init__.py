"""The controllers. Each folder has pure plans (`plan*.py`: values in, actions out) and a `controller.py` that applies them."""
