"""What a program holds: distribute(), and the model and the optimizer that it returns."""
