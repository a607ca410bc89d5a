"""How the tasks reach what is outside: connections, journals, Spark."""
