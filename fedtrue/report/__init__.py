"""Tables, figures, the HTML page: reads records, never trains."""
