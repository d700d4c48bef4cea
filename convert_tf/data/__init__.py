"""Examples to batches: records and token ids on disk, their order, packing, negatives."""
