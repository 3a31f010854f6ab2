"""Tables, figures and the HTML page. Reads the records of runs and never trains."""
