"""A variational autoencoder with a `train_step` and metrics of its own."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from outcome import report

keras.utils.set_random_seed(3)
tf.config.experimental.enable_op_determinism()
# TensorFlow orders the parts of a sum, such as that of the losses, anew in each process.
tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})

latent_dim = 2
digits = np.random.default_rng(0).random((1600, 12, 12, 1)).astype("float32")


class Sampling(layers.Layer):
    """Draws a code from its mean and the logarithm of its variance."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


encoder_inputs = keras.Input((12, 12, 1))
x = layers.Conv2D(8, 3, activation="relu", strides=2, padding="same")(encoder_inputs)
x = layers.Flatten()(x)
x = layers.Dense(16, activation="relu")(x)
z_mean = layers.Dense(latent_dim, name="z_mean")(x)
z_log_var = layers.Dense(latent_dim, name="z_log_var")(x)
encoder = keras.Model(encoder_inputs, [z_mean, z_log_var, Sampling()([z_mean, z_log_var])], name="encoder")

latent_inputs = keras.Input((latent_dim,))
x = layers.Dense(6 * 6 * 8, activation="relu")(latent_inputs)
x = layers.Reshape((6, 6, 8))(x)
x = layers.Conv2DTranspose(8, 3, activation="relu", strides=2, padding="same")(x)
decoder = keras.Model(latent_inputs, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x))


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")
        self.reconstruction_loss_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.total_loss_tracker, self.reconstruction_loss_tracker, self.kl_loss_tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_variance, code = self.encoder(data)
            binary = keras.losses.binary_crossentropy(data, self.decoder(code))
            reconstruction_loss = ops.mean(ops.sum(binary, axis=(1, 2)))
            kl = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
            kl_loss = ops.mean(ops.sum(kl, axis=1))
            total_loss = reconstruction_loss + kl_loss
        gradients = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total_loss_tracker.update_state(total_loss)
        self.reconstruction_loss_tracker.update_state(reconstruction_loss)
        self.kl_loss_tracker.update_state(kl_loss)
        return {
            "loss": self.total_loss_tracker.result(),
            "reconstruction_loss": self.reconstruction_loss_tracker.result(),
            "kl_loss": self.kl_loss_tracker.result(),
        }


vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam())
history = vae.fit(digits, epochs=10, batch_size=16, shuffle=False, verbose=2)

report([*vae.weights, *vae.optimizer.variables], history.history)
