"""The reference table: Parquet that workers write, under Delta logs that one driver commits."""
