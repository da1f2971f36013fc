"""Everything that may cross a party boundary, and how it gets there."""
