"""One function per command; each returns an Answer, which is printed as text or as JSON."""
