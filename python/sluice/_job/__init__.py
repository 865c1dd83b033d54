"""This process among the ranks of its job: how it joins them, who is lost, and what it may still do
after an exception."""
