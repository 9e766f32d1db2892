"""What every room stands on: errors that a user can mend, files of text and tables, tables and progress on a
terminal, and the processes that share work. It knows nothing of rounds.
"""
