"""The conversion of bytes on their way: converters, archives that are unpacked, and OpenPGP."""
