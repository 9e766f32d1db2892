"""What people look at. It takes the JSON documents that verbs print, and gives tables, plots, the paper's figures,
and reports.
"""
