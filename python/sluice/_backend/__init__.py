"""The backend "sluice" of torch.distributed: its process groups."""
