"""Looks at a machine before training: `sluice doctor TOPIC`."""
