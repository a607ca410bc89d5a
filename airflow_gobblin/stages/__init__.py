"""Pipelines of stages: which versions a stage may make, from which slots of its upstreams, and when it goes back.

Nothing passes between jobs but records and files: each rule is a function of their journals' states. The model that the rules
were tried on is in `tests/protocol/pipelines`.
"""
