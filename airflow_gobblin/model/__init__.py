"""The data types of the design: watermarks, coverage, work units, plans, states, and the wire format that stores them."""
