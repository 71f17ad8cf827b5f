"""Trains a small Keras model. Replace the data and the model by yours.

`python train.py` trains it once, without trainerd. `trainerd run` can pause it, resume it, and show how it goes.
"""

import argparse

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
epochs = parser.parse_args().epochs

keras.utils.set_random_seed(1)
x = np.random.default_rng(1).uniform(-3, 3, size=(4000, 2)).astype("float32")
y = np.sin(x[:, :1]) * np.cos(x[:, 1:])

model = keras.Sequential(
    [keras.Input((2,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
)
model.compile(keras.optimizers.Adam(0.002), "mse", metrics=["mae"])

slower = keras.callbacks.ReduceLROnPlateau("val_loss", patience=10)
stop = keras.callbacks.EarlyStopping("val_loss", patience=30, restore_best_weights=True)
history = model.fit(x, y, epochs=epochs, validation_split=0.2, callbacks=[slower, stop])

# What follows `fit` runs when the training is over.
model.save("model.keras")
print("the lowest loss:", min(history.history["val_loss"]))
