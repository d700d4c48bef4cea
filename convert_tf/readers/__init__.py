"""Readers of tables: CSV, TSV, JSON lines and Parquet, and texts that are lines or a column."""
