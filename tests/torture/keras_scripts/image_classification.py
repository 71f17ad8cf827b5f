"""Classifies small images. Layers of the model augment them."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from outcome import report

keras.utils.set_random_seed(1337)
tf.config.experimental.enable_op_determinism()

image_size = (16, 16)
batch_size = 16
rng = np.random.default_rng(0)
labels = rng.integers(0, 2, 960)
images = rng.uniform(0, 255, (960, *image_size, 3)).astype("float32")
images[labels == 1, 4:12, 4:12, 0] += 60  # one class has a red square

train_ds = tf.data.Dataset.from_tensor_slices((images[:800], labels[:800])).batch(batch_size).prefetch(tf.data.AUTOTUNE)
val_ds = tf.data.Dataset.from_tensor_slices((images[800:], labels[800:])).batch(batch_size).prefetch(tf.data.AUTOTUNE)

data_augmentation = [
    layers.RandomFlip("horizontal", seed=1),
    layers.RandomRotation(0.1, seed=2),
    layers.RandomContrast(0.1, seed=3),
]


def make_model(input_shape):
    inputs = keras.Input(shape=input_shape)
    x = inputs
    for layer in data_augmentation:
        x = layer(x)
    x = layers.Rescaling(1.0 / 255)(x)
    x = layers.Conv2D(8, 3, strides=2, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    shortcut = x
    x = layers.SeparableConv2D(12, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = layers.add([x, layers.Conv2D(12, 1, strides=2, padding="same")(shortcut)])
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.25, seed=4)(x)
    return keras.Model(inputs, layers.Dense(1)(x))


model = make_model((*image_size, 3))
early = keras.callbacks.EarlyStopping("val_loss", patience=6, restore_best_weights=True)
callbacks = [keras.callbacks.ModelCheckpoint("save_at_{epoch}.keras"), early]
model.compile(
    optimizer=keras.optimizers.Adam(3e-4),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(name="acc")],
)
history = model.fit(train_ds, epochs=10, callbacks=callbacks, validation_data=val_ds, verbose=2)

report(
    [*model.variables, *model.optimizer.variables],
    history.history,
    early=[early.best, early.best_epoch, early.wait],
)
