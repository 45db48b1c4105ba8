"""What users and dashboards see of scheduling: pod conditions, events and metrics."""
