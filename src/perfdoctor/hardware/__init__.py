"""What can this GPU do at most? Published peaks as data."""
