"""Where rows come from: the protocol (`base`), and one file a source."""
