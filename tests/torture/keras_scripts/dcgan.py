"""A GAN of convolutions: two networks, an optimizer and a metric for each, labels with noise."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from outcome import report

keras.utils.set_random_seed(10)
tf.config.experimental.enable_op_determinism()

latent_dim = 16
batch_size = 16
faces = np.random.default_rng(0).uniform(0, 255, (800, 8, 8, 3)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(faces).shuffle(800, seed=1).batch(batch_size).map(lambda x: x / 255.0)

discriminator = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        layers.Conv2D(8, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(8, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input((latent_dim,)),
        layers.Dense(4 * 4 * 8),
        layers.Reshape((4, 4, 8)),
        layers.Conv2DTranspose(8, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(3, 5, padding="same", activation="sigmoid"),
    ],
    name="generator",
)


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real_images):
        count = ops.shape(real_images)[0]
        latent = keras.random.normal((count, self.latent_dim), seed=self.seed_generator)
        images = ops.concatenate([self.generator(latent), real_images], axis=0)
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
        labels += 0.05 * keras.random.uniform(ops.shape(labels), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(images, training=True))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))

        latent = keras.random.normal((count, self.latent_dim), seed=self.seed_generator)
        misleading = ops.zeros((count, 1))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(misleading, self.discriminator(self.generator(latent)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


class GANMonitor(keras.callbacks.Callback):
    """Draws the same codes after each epoch."""

    def __init__(self, count=3):
        super().__init__()
        self.latent = np.random.default_rng(5).normal(size=(count, latent_dim)).astype("float32")
        self.brightness = []

    def on_epoch_end(self, epoch, logs=None):
        images = self.model.generator(self.latent) * 255
        self.brightness.append(float(ops.mean(images)))
        np.save(f"generated_{epoch}.npy", images)


gan = GAN(discriminator=discriminator, generator=generator, latent_dim=latent_dim)
gan.compile(
    d_optimizer=keras.optimizers.Adam(learning_rate=0.0001),
    g_optimizer=keras.optimizers.Adam(learning_rate=0.0001),
    loss_fn=keras.losses.BinaryCrossentropy(),
)
monitor = GANMonitor()
history = gan.fit(dataset, epochs=12, callbacks=[monitor], verbose=2)

report(
    [*gan.weights, *gan.d_optimizer.variables, *gan.g_optimizer.variables, gan.seed_generator.state],
    history.history,
    brightness=monitor.brightness,
)
