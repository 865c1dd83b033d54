"""Programs that make the papers' figures and tables again. They use public names of sluice only."""
