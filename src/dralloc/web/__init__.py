"""The web page that shows devices, claims and pending pods live."""
