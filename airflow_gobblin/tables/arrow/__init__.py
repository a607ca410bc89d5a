"""The parts of tables that need Arrow: transforms of partitions, statistics of data files, rules of schemas, merging. A reader of
a journal imports the modules of `tables`, and none of these.
"""
