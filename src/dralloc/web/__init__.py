"""The page that shows devices, claims and waiting pods in a browser, live."""
