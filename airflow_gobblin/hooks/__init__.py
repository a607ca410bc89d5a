"""How the tasks reach the world outside: connections, journals, Spark."""
