"""Tables as targets: the port that every format implements, the one step that commits to any of them, and a file each for
Iceberg, Delta and PostgreSQL.

A slot that publishes to a table has one act, the commit, which also moves the dataset's *mark* in the table. The mark is what
makes it happen once: the commit takes hold only on the mark that was there before, whoever tries, and however late.
"""
