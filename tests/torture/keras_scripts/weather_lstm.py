"""Forecasts a time series with an LSTM, with the callbacks of the weather example."""

import keras
import numpy as np
import tensorflow as tf
from outcome import report

keras.utils.set_random_seed(6)
tf.config.experimental.enable_op_determinism()

past, future, step = 48, 12, 2
batch_size = 32
hours = np.arange(2400)
noise = np.random.default_rng(0).normal(size=2400)
weather = np.stack([np.sin(hours / 20), np.cos(hours / 50) + 0.1 * noise, noise], axis=1).astype("float32")
split = 1800

options = {"sequence_length": past // step, "sampling_rate": step, "batch_size": batch_size}
dataset_train = keras.preprocessing.timeseries_dataset_from_array(
    weather[:split], weather[past + future : past + future + split, 0], **options
)
dataset_val = keras.preprocessing.timeseries_dataset_from_array(
    weather[split : -past - future], weather[split + past + future :, 0], **options
)
for batch in dataset_train.take(1):
    inputs, targets = batch

layer_inputs = keras.layers.Input(shape=(inputs.shape[1], inputs.shape[2]))
outputs = keras.layers.Dense(1)(keras.layers.LSTM(8)(layer_inputs))
model = keras.Model(inputs=layer_inputs, outputs=outputs)
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.01), loss="mse")

early = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=5)
best = keras.callbacks.ModelCheckpoint(
    monitor="val_loss", filepath="best.weights.h5", verbose=1, save_weights_only=True, save_best_only=True
)
plateau = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, verbose=1)
history = model.fit(dataset_train, epochs=12, validation_data=dataset_val, callbacks=[early, best, plateau], verbose=2)

report(
    [*model.weights, *model.optimizer.variables],
    history.history,
    early=[early.best, early.best_epoch, early.wait, early.stopped_epoch],
    best=best.best,
    plateau=[plateau.best, plateau.wait, plateau.cooldown_counter],
)
