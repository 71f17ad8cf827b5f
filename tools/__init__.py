"""Programs for those who change trainerd."""
