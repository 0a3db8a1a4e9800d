"""What a run leaves behind, in memory or in files; what was asked of it; results."""
