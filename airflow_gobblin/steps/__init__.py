"""Commit steps: publishing actions, each with a verification, and their execution."""
