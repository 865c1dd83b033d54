"""The time of a training, by layer, measured with the host's clock or a device's."""
