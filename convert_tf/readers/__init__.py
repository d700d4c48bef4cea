"""Readers for tables (CSV, TSV, JSON lines, Parquet), and for texts in lines or in a column."""
