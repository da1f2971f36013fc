"""What the method was measured with; not part of the package."""
