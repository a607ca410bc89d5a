"""Where rows go: the protocol (`base`), and one file a sink."""
