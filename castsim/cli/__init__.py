"""The command line: one file a verb. A verb parses its options, calls one function of another room and prints."""
