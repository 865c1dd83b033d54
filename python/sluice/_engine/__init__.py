"""The training of one model: hooks hand over gradients, gates wait for their means, and all ranks
agree on the same plan."""
