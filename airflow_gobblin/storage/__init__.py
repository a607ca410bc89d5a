"""Storage: locations, the file systems behind them, files below a target root, and stores of records."""
