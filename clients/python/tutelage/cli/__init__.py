"""The command line, `tutelage`."""
