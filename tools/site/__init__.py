"""The documentation site: `python -m tools.site` builds it into site/, or says what is wrong with it.

Its pages are those of docs/, and those that are made from the code: commands, public names, exit codes, messages.
"""
