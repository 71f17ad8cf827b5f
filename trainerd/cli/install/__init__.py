"""What `trainerd install` writes."""
