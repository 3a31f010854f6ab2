"""What each command does: it returns an Answer, which is printed as a table or as JSON."""
