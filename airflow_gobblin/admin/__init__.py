"""Views of datasets for people, and their audited actions on them: rewinds, exports and others."""
