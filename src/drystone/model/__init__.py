"""Frozen values that every layer speaks: granules, arrays, chunk rows, placements, tasks, receipts, releases."""
