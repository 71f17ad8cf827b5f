"""Writes text character by character: a loop over `fit`, one epoch each, with a sample between two epochs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from outcome import report

import trainerd

keras.utils.set_random_seed(9)
tf.config.experimental.enable_op_determinism()

text = "the quick brown fox jumps over the lazy dog and then it sleeps. " * 20
chars = sorted(set(text))
numbers = {c: i for i, c in enumerate(chars)}
maxlen = 16
starts = range(len(text) - maxlen)
x = np.zeros((len(starts), maxlen, len(chars)), dtype="bool")
y = np.zeros((len(starts), len(chars)), dtype="bool")
for i in starts:
    for t, char in enumerate(text[i : i + maxlen]):
        x[i, t, numbers[char]] = True
    y[i, numbers[text[i + maxlen]]] = True

model = keras.Sequential(
    [keras.Input((maxlen, len(chars))), layers.LSTM(24), layers.Dense(len(chars), activation="softmax")]
)
model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.RMSprop(0.01))


def sample(predicted, temperature, rng):
    scaled = np.exp(np.log(np.asarray(predicted, "float64")) / temperature)
    return int(np.argmax(rng.multinomial(1, scaled / scaled.sum())))


losses = []
for epoch in range(5):
    history = trainerd.keras.fit(model, x, y, batch_size=32, epochs=1, verbose=2, logdir="run")
    losses += history.history["loss"]
    rng = np.random.default_rng(epoch)
    begin = int(rng.integers(len(starts)))
    sentence = text[begin : begin + maxlen]
    for _ in range(12):
        encoded = np.zeros((1, maxlen, len(chars)))
        for t, char in enumerate(sentence[-maxlen:]):
            encoded[0, t, numbers[char]] = 1.0
        sentence += chars[sample(model.predict(encoded, verbose=0)[0], 0.5, rng)]
    print("after epoch", epoch, repr(sentence))

report([*model.weights, *model.optimizer.variables], losses, last=sentence)
