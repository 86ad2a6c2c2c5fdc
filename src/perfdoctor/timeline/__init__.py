"""What happened when, on which rank, device and thread? The one model that every reader fills and every metric asks."""
