"""The copy of a bundle: origins that give bytes, destinations that stage them, and what brings them across."""
