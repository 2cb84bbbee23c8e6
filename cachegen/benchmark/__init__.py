"""Size, harm, speed and memory of every encoding on one text, beside what else one could do with the same data."""
