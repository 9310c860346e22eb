"""The one place where stages meet: scan, plan, run, status, verify, open."""
