"""Predicts ratings from the names of users and films, which are strings up to the model's own StringLookup."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from outcome import report

keras.utils.set_random_seed(8)
tf.config.experimental.enable_op_determinism()

rng = np.random.default_rng(0)
users = rng.integers(0, 60, 4000)
films = rng.integers(0, 80, 4000)
taste = rng.normal(size=(60, 3)), rng.normal(size=(80, 3))
scores = 1 / (1 + np.exp(-(taste[0][users] * taste[1][films]).sum(axis=1)))
ratings = tf.data.Dataset.from_tensor_slices(
    {
        "user": [f"user-{number}" for number in users],
        "film": [f"Film No. {number} (19{number % 100:02})" for number in films],
        "rating": scores.astype("float32"),
    }
)
shuffled = ratings.shuffle(4000, seed=42, reshuffle_each_iteration=False)
train = shuffled.take(3200).map(lambda x: ({"user": x["user"], "film": x["film"]}, x["rating"])).batch(16).cache()
test = shuffled.skip(3200).map(lambda x: ({"user": x["user"], "film": x["film"]}, x["rating"])).batch(32).cache()

user_lookup = layers.StringLookup(mask_token=None)
user_lookup.adapt(ratings.map(lambda x: x["user"]).batch(500))
film_lookup = layers.StringLookup(mask_token=None)
film_lookup.adapt(ratings.map(lambda x: x["film"]).batch(500))


class Recommender(keras.Model):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        regular = keras.regularizers.l2(1e-6)
        self.user_lookup, self.film_lookup = user_lookup, film_lookup
        count = user_lookup.vocabulary_size(), film_lookup.vocabulary_size()
        self.user_embedding = layers.Embedding(count[0], size, embeddings_regularizer=regular)
        self.user_bias = layers.Embedding(count[0], 1)
        self.film_embedding = layers.Embedding(count[1], size, embeddings_regularizer=regular)
        self.film_bias = layers.Embedding(count[1], 1)

    def call(self, inputs):
        user, film = self.user_lookup(inputs["user"]), self.film_lookup(inputs["film"])
        dot = ops.sum(self.user_embedding(user) * self.film_embedding(film), axis=1, keepdims=True)
        return ops.sigmoid(dot + self.user_bias(user) + self.film_bias(film))


model = Recommender(8)
model.compile(
    loss=keras.losses.BinaryCrossentropy(),
    optimizer=keras.optimizers.Adagrad(0.1),
    metrics=[keras.metrics.RootMeanSquaredError(name="rmse")],
)
log = keras.callbacks.CSVLogger("log.csv")
history = model.fit(train, epochs=10, validation_data=test, validation_freq=2, callbacks=[log], verbose=2)

rows = Path("log.csv").read_text().splitlines() if Path("log.csv").exists() else []  # `trainerd prove` writes none
report([*model.weights, *model.optimizer.variables], history.history, rows=rows)
