"""The plans of `trainerd install`, and how they are carried out."""
