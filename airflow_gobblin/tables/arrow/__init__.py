"""The parts of tables that need Arrow: partition transforms, data file statistics, schema rules, merging. A reader of a journal
imports the modules of `tables`, and none of these.
"""
