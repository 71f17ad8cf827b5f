"""What all tests share."""

from __future__ import annotations

import gc

# TensorFlow's graphs are garbage in circles, and what looks for it grows with all there is: of the tests' time it was a
# sixth, up to a minute in a single one. Without it a worker needs 3.7 GB in the place of 2.1.
gc.disable()
