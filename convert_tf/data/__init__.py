"""Conversation data: dumps to threads to records, and records to batches."""
