"""What quotas say is used. Limits are held by the API server; here is only counted, for people and dashboards."""
