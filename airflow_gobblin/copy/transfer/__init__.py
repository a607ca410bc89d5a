"""The copy of a bundle: origins that give bytes, destinations that stage them, and the ways between them."""
