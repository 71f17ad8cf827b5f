"""The monitored sessions."""
