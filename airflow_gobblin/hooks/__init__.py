"""How the tasks reach the outside world: connections, journals, Spark."""
