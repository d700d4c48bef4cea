"""The papers' tasks: one reader for each published file format."""
