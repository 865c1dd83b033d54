"""One tensor in training: the modules that read it, its gradient's way into the session, and the
mean that comes back."""
