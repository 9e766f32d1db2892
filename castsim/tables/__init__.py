"""What verbs print of the JSON that they make: one file a verb."""
