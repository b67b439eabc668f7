#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Learns handwritten digits with what servers run beside TensorFlow: PyTorch, XGBoost, scikit-learn.

    train_servers.py --model transformer --data digits.npz --log transformer.jsonl

As train.py: there is nothing of Threadtide in this file, and --log gets the same lines: step and steps a
few times a second, and a last one with training loss, test loss and accuracy.
"""

import argparse
import json
import time

import numpy as np

LOG_EVERY_S = 0.2
BATCH = 128
TREES = 4  # of a forest's step


class Log:
    def __init__(self, path, steps):
        self.file = open(path, "w", buffering=1, encoding="utf-8")
        self.steps, self.step, self.last = steps, 0, 0.0

    def stepped(self):
        self.step += 1
        now = time.time()
        if now - self.last >= LOG_EVERY_S or self.step == self.steps:
            self.last = now
            self.write()

    def write(self, **values):
        self.file.write(json.dumps({"time": time.time(), "step": self.step, "steps": self.steps,
                                    **{k: float(v) for k, v in values.items()}}) + "\n")


def log_loss(shares, y):
    return -np.log(np.clip(shares[np.arange(len(y)), y], 1e-7, 1)).mean()


def transformer(data, epochs, log_of):
    """Reads a picture row by row."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, rows, columns, width=128):
            super().__init__()
            self.into, self.places = nn.Linear(columns, width), nn.Parameter(torch.zeros(rows, width))
            self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True), 1)
            self.out = nn.Linear(width, 10)

        def forward(self, x):
            return self.out(self.body(self.into(x) + self.places).mean(1))

    torch.manual_seed(1)
    x, y, x_test, y_test = (torch.from_numpy(np.ascontiguousarray(d)) for d in data)
    x, x_test, y, y_test = x.squeeze(-1).float(), x_test.squeeze(-1).float(), y.long(), y_test.long()
    net, loss_of = Net(*x.shape[1:3]), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    batches = -(-len(x) // BATCH)
    log = log_of(epochs * batches)
    for _ in range(epochs):
        losses = []
        for order in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss = loss_of(net(x[order]), y[order])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            log.stepped()
    net.eval()
    with torch.no_grad():
        answers = torch.cat([net(part) for part in x_test.split(500)])
        log.write(train_loss=np.mean(losses), test_loss=loss_of(answers, y_test),
                  accuracy=(answers.argmax(1) == y_test).float().mean())


def xgboost(data, epochs, log_of):
    import xgboost as xgb
    x, y, x_test, y_test = flat(data)
    train, test = xgb.DMatrix(x, y), xgb.DMatrix(x_test, y_test)
    booster = xgb.Booster({"objective": "multi:softprob", "num_class": 10, "tree_method": "hist", "max_depth": 6,
                           "subsample": 0.5, "seed": 1}, [train])
    log = log_of(epochs)
    for i in range(epochs):
        booster.update(train, i)
        log.stepped()
    answers = booster.predict(test)
    log.write(train_loss=log_loss(booster.predict(train), y), test_loss=log_loss(answers, y_test),
              accuracy=(answers.argmax(1) == y_test).mean())


def forest(data, epochs, log_of):
    from sklearn.ensemble import RandomForestClassifier
    x, y, x_test, y_test = flat(data)
    model = RandomForestClassifier(0, n_jobs=-1, random_state=1, warm_start=True)
    log = log_of(epochs)
    for _ in range(epochs):
        model.n_estimators += TREES
        model.fit(x, y)
        log.stepped()
    answers = model.predict_proba(x_test)
    log.write(train_loss=log_loss(model.predict_proba(x), y), test_loss=log_loss(answers, y_test),
              accuracy=(answers.argmax(1) == y_test).mean())


def flat(data):
    x, y, x_test, y_test = data
    return x.reshape(len(x), -1), y.astype("int64"), x_test.reshape(len(x_test), -1), y_test.astype("int64")


MODELS = {"transformer": (transformer, 6), "xgboost": (xgboost, 60), "forest": (forest, 60)}


def main():
    p = argparse.ArgumentParser(description="Learn handwritten digits with PyTorch, XGBoost or a forest.")
    p.add_argument("--model", required=True, choices=sorted(MODELS))
    p.add_argument("--data", required=True, metavar="FILE", help="x_train, y_train, x_test, y_test as .npz")
    p.add_argument("--log", required=True, metavar="FILE", help="where the progress goes")
    p.add_argument("--epochs", type=int, help="passes over the data, rounds, or steps of %d trees" % TREES)
    args = p.parse_args()
    train, epochs = MODELS[args.model]
    arrays = np.load(args.data)
    data = [arrays[k] for k in ("x_train", "y_train", "x_test", "y_test")]
    train(data, args.epochs or epochs, lambda steps: Log(args.log, steps))


if __name__ == "__main__":
    main()
