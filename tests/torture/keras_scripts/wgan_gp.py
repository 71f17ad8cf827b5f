"""A Wasserstein GAN with a gradient penalty: several steps of the discriminator for each one of the generator."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from outcome import digest, report

keras.utils.set_random_seed(2)
tf.config.experimental.enable_op_determinism()

BATCH_SIZE = 16
LATENT_DIM = 16
IMG_SHAPE = (8, 8, 1)
train_images = np.random.default_rng(0).normal(size=(800, *IMG_SHAPE)).clip(-1, 1).astype("float32")


def make_discriminator():
    inputs = keras.Input(IMG_SHAPE)
    x = layers.Conv2D(8, 3, strides=2, padding="same")(inputs)
    x = layers.LeakyReLU(negative_slope=0.2)(x)
    x = layers.Dropout(0.3)(x)
    x = layers.Flatten()(x)
    return keras.Model(inputs, layers.Dense(1)(x), name="discriminator")


def make_generator():
    inputs = keras.Input((LATENT_DIM,))
    x = layers.Dense(4 * 4 * 8, use_bias=False)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.LeakyReLU(negative_slope=0.2)(x)
    x = layers.Reshape((4, 4, 8))(x)
    x = layers.UpSampling2D(2)(x)
    x = layers.Conv2D(1, 3, padding="same", activation="tanh")(x)
    return keras.Model(inputs, x, name="generator")


class WGAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim, discriminator_steps=3, gp_weight=10.0):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.d_steps = discriminator_steps
        self.gp_weight = gp_weight
        self.seeds = keras.random.SeedGenerator(7)

    def compile(self, d_optimizer, g_optimizer, d_loss_fn, g_loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.d_loss_fn = d_loss_fn
        self.g_loss_fn = g_loss_fn

    def sample(self, count):
        return keras.random.normal((count, self.latent_dim), seed=self.seeds)

    def gradient_penalty(self, real_images, fake_images):
        alpha = keras.random.uniform((ops.shape(real_images)[0], 1, 1, 1), seed=self.seeds)
        mixed = real_images + alpha * (fake_images - real_images)
        with tf.GradientTape() as tape:
            tape.watch(mixed)
            predicted = self.discriminator(mixed, training=True)
        gradients = tape.gradient(predicted, mixed)
        norm = ops.sqrt(ops.sum(ops.square(gradients), axis=[1, 2, 3]))
        return ops.mean((norm - 1.0) ** 2)

    def train_step(self, real_images):
        count = ops.shape(real_images)[0]
        for _ in range(self.d_steps):
            latent = self.sample(count)
            with tf.GradientTape() as tape:
                fake_images = self.generator(latent, training=True)
                fake = self.discriminator(fake_images, training=True)
                real = self.discriminator(real_images, training=True)
                penalty = self.gradient_penalty(real_images, fake_images)
                d_loss = self.d_loss_fn(real, fake) + self.gp_weight * penalty
            weights = self.discriminator.trainable_variables
            self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        latent = self.sample(count)
        with tf.GradientTape() as tape:
            g_loss = self.g_loss_fn(self.discriminator(self.generator(latent, training=True), training=True))
        weights = self.generator.trainable_variables
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        return {"d_loss": d_loss, "g_loss": g_loss}


class GANMonitor(keras.callbacks.Callback):
    """Draws some images after each epoch."""

    def __init__(self, count=3):
        super().__init__()
        self.count = count
        self.seeds = keras.random.SeedGenerator(11)
        self.drawn = []

    def on_epoch_end(self, epoch, logs=None):
        latent = keras.random.normal((self.count, LATENT_DIM), seed=self.seeds)
        images = self.model.generator(latent) * 127.5 + 127.5
        self.drawn.append(digest([images]))
        np.save(f"generated_{epoch}.npy", images)


monitor = GANMonitor()
wgan = WGAN(make_discriminator(), make_generator(), LATENT_DIM)
wgan.compile(
    d_optimizer=keras.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9),
    g_optimizer=keras.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9),
    d_loss_fn=lambda real, fake: ops.mean(fake) - ops.mean(real),
    g_loss_fn=lambda fake: -ops.mean(fake),
)
history = wgan.fit(train_images, batch_size=BATCH_SIZE, epochs=7, callbacks=[monitor], verbose=2)

report(
    [*wgan.variables, *wgan.d_optimizer.variables, *wgan.g_optimizer.variables],
    history.history,
    drawn=monitor.drawn,
    seeds=digest([monitor.seeds.state]),
)
