"""The command line: words to calls of the public functions, reports to text or JSON, errors to exit codes."""
