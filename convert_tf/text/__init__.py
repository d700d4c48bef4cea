"""Text: subword learning, the vocabulary file and the in-graph tokenizers."""
