"""Deep Q-learning by hand: a loop that plays and trains, a replay buffer in NumPy, and a target network."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from outcome import digest, report

import trainerd

keras.utils.set_random_seed(7)
tf.config.experimental.enable_op_determinism()

gamma = 0.95
actions = 3
batch_size = 32
batches = 20  # of a round
plays = 100
rounds = 8
update_target_every = 2
memory_size = 500
width = 6

model = keras.Sequential([keras.Input((3,)), layers.Dense(24, "relu"), layers.Dense(24, "relu"), layers.Dense(actions)])
model.compile(optimizer=keras.optimizers.Adam(0.002, clipnorm=1.0), loss=keras.losses.Huber())
model_target = keras.models.clone_model(model)

# `fit` saves the model. What else the loop changes is kept.
rng = trainerd.keep("rng", np.random.default_rng(7))
target = trainerd.keep("target", {"weights": model.get_weights()})
game = trainerd.keep("game", {"ball": 0, "height": 0, "paddle": 0})
exploration = trainerd.keep("exploration", {"epsilon": 1.0})
progress = trainerd.keep("progress", {"plays": 0, "episodes": 0})
rewards = trainerd.keep("rewards", np.zeros(rounds))
replay = trainerd.keep(
    "replay",
    {
        "states": np.zeros((memory_size, 3), "float32"),
        "next_states": np.zeros((memory_size, 3), "float32"),
        "actions": np.zeros(memory_size, "int64"),
        "rewards": np.zeros(memory_size, "float32"),
        "done": np.zeros(memory_size, "float32"),
    },
)


def observe():
    return np.array([game["ball"], game["height"], game["paddle"]], "float32") / width


def play():
    """Move the paddle once while the ball falls, and put that into the replay buffer. Return the reward."""
    if game["height"] == 0:
        game.update(ball=int(rng.integers(width)), height=width, paddle=int(rng.integers(width)))
    state = observe()
    exploration["epsilon"] = max(0.05, exploration["epsilon"] * 0.995)
    explores = rng.random() < exploration["epsilon"]
    action = int(rng.integers(actions)) if explores else int(np.argmax(model(state[None], training=False)[0]))
    game["paddle"] = min(max(game["paddle"] + action - 1, 0), width - 1)
    game["height"] -= 1
    done = game["height"] == 0
    reward = (1.0 if game["ball"] == game["paddle"] else -1.0) if done else 0.0
    at = progress["plays"] % memory_size
    replay["states"][at], replay["next_states"][at] = state, observe()
    replay["actions"][at], replay["rewards"][at], replay["done"][at] = action, reward, done
    progress["plays"] += 1
    progress["episodes"] += int(done)
    return reward


losses = []
for number in range(rounds):
    rewards[number] = sum(play() for _ in range(plays))
    if number % update_target_every == 0:
        target["weights"] = model.get_weights()
    model_target.set_weights(target["weights"])
    chosen = rng.integers(min(progress["plays"], memory_size), size=batch_size * batches)
    future = np.max(model_target.predict(replay["next_states"][chosen], verbose=0), axis=1)
    values = model.predict(replay["states"][chosen], verbose=0)
    updated = replay["rewards"][chosen] + gamma * (1.0 - replay["done"][chosen]) * future
    values[np.arange(len(chosen)), replay["actions"][chosen]] = updated
    history = trainerd.keras.fit(
        model,
        replay["states"][chosen],
        values,
        batch_size=batch_size,
        initial_epoch=number,
        epochs=number + 1,
        shuffle=False,
        verbose=2,
        logdir="run",
    )
    losses += history.history["loss"]

report(
    [*model.weights, *model.optimizer.variables],
    losses,
    rewards=rewards.tolist(),
    progress=exploration | progress,
    replay=digest(replay.values()),
    target=digest(target["weights"]),
    rng=rng.bit_generator.state["state"]["state"] % 2**32,
)
