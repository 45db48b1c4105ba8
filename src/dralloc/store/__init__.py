"""Revisioned bytes: one interface, kept in memory, in an SQLite file or in etcd. Knows no kinds."""
