"""The SDK for drivers."""
