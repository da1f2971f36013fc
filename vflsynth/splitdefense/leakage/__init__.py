"""What a split training tells of labels and columns, measured on what was sent."""
