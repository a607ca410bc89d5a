"""The protocol: deciding slots, carrying them out, cleaning up; and where an ingestion's slots are published."""
