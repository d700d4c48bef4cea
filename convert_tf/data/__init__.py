"""Examples on disk, as records or token ids, and the batches that are made from them."""
