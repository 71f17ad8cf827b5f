"""A program that keeps `fit`, for as many epochs as its argument says."""

import logging
import sys

import keras
from jobs import linear_data, linear_model  # type: ignore[import-not-found]

import trainerd.keras

logging.basicConfig(level=logging.INFO)
plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=10**9)
with trainerd.keras.Supervise("run", callbacks=[plateau]) as supervise:
    linear_model().fit(linear_data(), epochs=int(sys.argv[1]), verbose=0, callbacks=[plateau, supervise])
