"""Runs jobs: creates pods until enough of them succeed, and reserves claims for the job while it runs."""
