"""A diffusion model: a network that removes noise, and an exponential moving average of its weights that samples."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from outcome import digest, report

keras.utils.set_random_seed(4)
tf.config.experimental.enable_op_determinism()

image_size = 8
batch_size = 16
embedding_dims = 8
ema = 0.99
min_signal_rate, max_signal_rate = 0.02, 0.95


def preprocess(image):
    return tf.clip_by_value(image, 0.0, 1.0)


def prepare_dataset(seed, count):
    images = np.random.default_rng(seed).random((count, image_size, image_size, 3)).astype("float32")
    return (
        tf.data.Dataset.from_tensor_slices(images)
        .map(preprocess, num_parallel_calls=tf.data.AUTOTUNE)
        .cache()
        .repeat(2)
        .shuffle(10 * batch_size, seed=seed)
        .batch(batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


@keras.saving.register_keras_serializable()
class SinusoidalEmbedding(layers.Layer):
    def call(self, x):
        frequencies = ops.exp(ops.linspace(ops.log(1.0), ops.log(1000.0), embedding_dims // 2))
        angles = ops.cast(2.0 * math.pi * frequencies, "float32") * x
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=3)


def make_network():
    noisy_images = keras.Input((image_size, image_size, 3))
    noise_variances = keras.Input((1, 1, 1))
    e = SinusoidalEmbedding()(noise_variances)
    e = layers.UpSampling2D(size=image_size, interpolation="nearest")(e)
    x = layers.Concatenate()([layers.Conv2D(8, 1)(noisy_images), e])
    x = layers.BatchNormalization(center=False, scale=False)(x)
    x = layers.Conv2D(8, 3, padding="same", activation="swish")(x)
    x = layers.Conv2D(3, 1, kernel_initializer="zeros")(x)
    return keras.Model([noisy_images, noise_variances], x, name="network")


class DiffusionModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = make_network()
        self.ema_network = keras.models.clone_model(self.network)
        self.noises = keras.random.SeedGenerator(1)
        self.samples = keras.random.SeedGenerator(2)

    def compile(self, **kwargs):
        super().compile(**kwargs)
        self.noise_loss_tracker = keras.metrics.Mean(name="n_loss")
        self.image_loss_tracker = keras.metrics.Mean(name="i_loss")

    @property
    def metrics(self):
        return [self.noise_loss_tracker, self.image_loss_tracker]

    def rates(self, times):
        start, end = math.acos(max_signal_rate), math.acos(min_signal_rate)
        angles = start + times * (end - start)
        return ops.sin(angles), ops.cos(angles)

    def denoise(self, noisy_images, noise_rates, signal_rates, training):
        network = self.network if training else self.ema_network
        noises = network([noisy_images, noise_rates**2], training=training)
        return noises, (noisy_images - noise_rates * noises) / signal_rates

    def generate(self, count, steps):
        images = keras.random.normal((count, image_size, image_size, 3), seed=self.samples)
        for step in range(steps):
            times = ops.ones((count, 1, 1, 1)) - step / steps
            noises, cleaned = self.denoise(images, *self.rates(times), training=False)
            noise_rates, signal_rates = self.rates(times - 1 / steps)
            images = signal_rates * cleaned + noise_rates * noises
        return cleaned

    def noisy(self, images, training):
        images = self.normalizer(images, training=training)
        noises = keras.random.normal((batch_size, image_size, image_size, 3), seed=self.noises)
        times = keras.random.uniform((batch_size, 1, 1, 1), seed=self.noises)
        noise_rates, signal_rates = self.rates(times)
        return images, noises, noise_rates, signal_rates, signal_rates * images + noise_rates * noises

    def train_step(self, images):
        images, noises, noise_rates, signal_rates, mixed = self.noisy(images, training=True)
        with tf.GradientTape() as tape:
            found_noises, found_images = self.denoise(mixed, noise_rates, signal_rates, training=True)
            noise_loss = self.loss(noises, found_noises)
            image_loss = self.loss(images, found_images)
        weights = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(noise_loss, weights), weights, strict=True))
        self.noise_loss_tracker.update_state(noise_loss)
        self.image_loss_tracker.update_state(image_loss)
        for weight, average in zip(self.network.weights, self.ema_network.weights, strict=True):
            average.assign(ema * average + (1 - ema) * weight)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, images):
        images, noises, noise_rates, signal_rates, mixed = self.noisy(images, training=False)
        found_noises, found_images = self.denoise(mixed, noise_rates, signal_rates, training=False)
        self.noise_loss_tracker.update_state(self.loss(noises, found_noises))
        self.image_loss_tracker.update_state(self.loss(images, found_images))
        return {metric.name: metric.result() for metric in self.metrics}


class Plot(keras.callbacks.Callback):
    """Samples some images after each epoch."""

    def __init__(self):
        super().__init__()
        self.plotted = []

    def on_epoch_end(self, epoch, logs=None):
        self.plotted.append(digest([self.model.generate(4, steps=3)]))


train_dataset = prepare_dataset(0, 800)
val_dataset = prepare_dataset(1, 80)
model = DiffusionModel()
model.built = True  # it has no `call` of its own; ModelCheckpoint refuses a model that is not built
model.compile(optimizer=keras.optimizers.AdamW(1e-3, weight_decay=1e-4), loss=keras.losses.mean_absolute_error)
plot = Plot()
best = keras.callbacks.ModelCheckpoint(
    "best.weights.h5", save_weights_only=True, monitor="val_i_loss", mode="min", save_best_only=True
)
model.normalizer.adapt(train_dataset)
history = model.fit(train_dataset, epochs=8, validation_data=val_dataset, callbacks=[plot, best], verbose=2)

report(
    [*model.weights, *model.optimizer.variables, model.noises.state, model.samples.state],
    history.history,
    plotted=plot.plotted,
    best=best.best,
)
