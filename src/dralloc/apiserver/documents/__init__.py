"""Documents: patches, server-side apply and field ownership on plain JSON."""
