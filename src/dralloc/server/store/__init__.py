"""Revisioned bytes: one interface, in memory, in an SQLite file or in etcd. Knows no kinds."""
