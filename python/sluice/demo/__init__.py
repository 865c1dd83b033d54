"""`python -m sluice.demo`: DDP and sluice train the same model over the same slow link."""
