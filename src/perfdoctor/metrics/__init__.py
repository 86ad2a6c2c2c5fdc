"""Which numbers would anyone agree on? Metrics measure; they hold no opinion."""
