"""Classifies reviews. A TextVectorization in the dataset turns their words into numbers."""

import random
import re
import string

import keras
import tensorflow as tf
from keras import layers
from outcome import report

keras.utils.set_random_seed(5)
tf.config.experimental.enable_op_determinism()

batch_size = 16
max_features, embedding_dim, sequence_length = 100, 16, 24
writer = random.Random(0)
words = ["good", "bad", "film", "plot", "<br />", "great", "awful", "The", "a", "was", "ending", "actor!"]
reviews = [" ".join(writer.choice(words) for _ in range(20)) for _ in range(2000)]
labels = [int(r.count("good") + r.count("great") > r.count("bad") + r.count("awful")) for r in reviews]
raw = tf.data.Dataset.from_tensor_slices((reviews, labels))
raw_train_ds = raw.take(1600).shuffle(500, seed=1).batch(batch_size)
raw_val_ds = raw.skip(1600).batch(batch_size)


def custom_standardization(text):
    plain = tf.strings.regex_replace(tf.strings.lower(text), "<br />", " ")
    return tf.strings.regex_replace(plain, f"[{re.escape(string.punctuation)}]", "")


vectorize_layer = layers.TextVectorization(
    standardize=custom_standardization,
    max_tokens=max_features,
    output_mode="int",
    output_sequence_length=sequence_length,
)
vectorize_layer.adapt(raw_train_ds.map(lambda text, label: text))


def vectorize_text(text, label):
    return vectorize_layer(tf.expand_dims(text, -1)), label


train_ds = raw_train_ds.map(vectorize_text).cache().prefetch(buffer_size=10)
val_ds = raw_val_ds.map(vectorize_text).cache().prefetch(buffer_size=10)

inputs = keras.Input(shape=(None,), dtype="int64")
x = layers.Embedding(max_features, embedding_dim)(inputs)
x = layers.Dropout(0.5)(x)
x = layers.Conv1D(16, 7, padding="valid", activation="relu", strides=3)(x)
x = layers.GlobalMaxPooling1D()(x)
x = layers.Dense(16, activation="relu")(x)
x = layers.Dropout(0.5)(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid", name="predictions")(x))
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(train_ds, validation_data=val_ds, epochs=12, verbose=2)

# What was trained takes raw strings from here on.
raw_inputs = keras.Input(shape=(1,), dtype="string")
end_to_end = keras.Model(raw_inputs, model(vectorize_layer(raw_inputs)))
end_to_end.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
report([*model.variables, *model.optimizer.variables], history.history, test=end_to_end.evaluate(raw_val_ds, verbose=0))
