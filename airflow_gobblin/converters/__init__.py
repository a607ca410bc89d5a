"""What happens to rows on their way: converters, and row checks."""
