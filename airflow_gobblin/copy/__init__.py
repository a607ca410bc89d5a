"""The work on files: mirrors of trees, published one file set at a time."""
