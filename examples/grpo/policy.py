"""A language model small enough to read: tokens in, one more token out.

The prompt and what was answered so far lie on a line of LINE places. The token at each
place is embedded, one hidden layer sees them all, and out come the logits of the next
token: 28,000 weights, numpy alone, the gradient written out by hand.
"""

import numpy as np
from numpy.typing import NDArray

VOCABULARY = "0123456789>."  # the full stop ends an answer
END = VOCABULARY.index(".")
PAD = len(VOCABULARY)  # nothing is here (yet); never generated
PROMPT, ANSWER = 6, 6  # tokens of a prompt, and of an answer at most
LINE = PROMPT + ANSWER - 1
EMBED, HIDDEN = 12, 192

Array = NDArray[np.float32]
Tokens = NDArray[np.int64]
Weights = dict[str, Array]


def new_weights(seed: int) -> Weights:
    """Random, the same for the same seed; at first all tokens are about as likely."""
    random = np.random.default_rng(seed)

    def layer(inputs: int, outputs: int, scale: float) -> Array:
        return (random.normal(size=(inputs, outputs)) * scale).astype(np.float32)

    return {
        "embed": layer(len(VOCABULARY) + 1, EMBED, 1.0),
        "hidden": layer(LINE * EMBED, HIDDEN, (LINE * EMBED) ** -0.5),
        "hidden_bias": np.zeros(HIDDEN, np.float32),
        "out": layer(HIDDEN, len(VOCABULARY), 0.1 * HIDDEN**-0.5),
        "out_bias": np.zeros(len(VOCABULARY), np.float32),
    }


# ---- text and tokens ------------------------------------------------------------------


def encode(texts: list[str], length: int) -> Tokens:
    """A row of `length` tokens for each text."""
    rows = np.full((len(texts), length), PAD)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = [VOCABULARY.index(char) for char in text]
    return rows


def decode(rows: Tokens) -> list[str]:
    return ["".join(VOCABULARY[t] for t in row if t != PAD) for row in rows.tolist()]


# ---- forward and backward -------------------------------------------------------------


def forward(weights: Weights, lines: Tokens) -> tuple[Array, Array, Array]:
    """Log-probabilities of the next token of each line, and what `backward` needs."""
    embedded = weights["embed"][lines].reshape(len(lines), LINE * EMBED)
    hidden = np.tanh(embedded @ weights["hidden"] + weights["hidden_bias"])
    logits = hidden @ weights["out"] + weights["out_bias"]
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return log_p, hidden, embedded


def backward(
    weights: Weights, lines: Tokens, hidden: Array, embedded: Array, slope: Array
) -> Weights:
    """The gradient by all weights, from the slope of the loss by each logit."""
    at_hidden = (slope @ weights["out"].T) * (1 - hidden**2)
    at_embedded = at_hidden @ weights["hidden"].T
    is_token = np.eye(len(VOCABULARY) + 1, dtype=slope.dtype)[lines.reshape(-1)]
    return {
        "embed": is_token.T @ at_embedded.reshape(-1, EMBED),
        "hidden": embedded.T @ at_hidden,
        "hidden_bias": at_hidden.sum(axis=0),
        "out": hidden.T @ slope,
        "out_bias": slope.sum(axis=0),
    }


# ---- answers --------------------------------------------------------------------------


def generate(
    weights: Weights, prompts: Tokens, random: np.random.Generator | None = None
) -> tuple[Tokens, Array]:
    """An answer to each prompt, and the log-probability of each of its tokens.

    Without `random` each token is the likeliest one.
    """
    lines = np.full((len(prompts), PROMPT + ANSWER), PAD)
    lines[:, :PROMPT] = prompts
    log_ps = np.zeros((len(prompts), ANSWER), np.float32)
    running = np.arange(len(prompts))  # rows whose answer has not ended
    for at in range(ANSWER):
        log_p, _, _ = forward(weights, lines[running, :LINE])
        if random is None:
            tokens = log_p.argmax(axis=1)
        else:  # the largest of log p plus Gumbel noise is a sample of p
            tokens = (log_p + random.gumbel(size=log_p.shape)).argmax(axis=1)
        lines[running, PROMPT + at] = tokens
        log_ps[running, at] = log_p[np.arange(len(tokens)), tokens]
        running = running[tokens != END]
    return lines[:, PROMPT:], log_ps


def unroll(
    prompts: Tokens, answers: Tokens
) -> tuple[Tokens, Tokens, NDArray[np.bool_]]:
    """Every place of every answer: the line before it, its token, whether it has one."""
    lines = np.full((len(prompts), ANSWER, LINE), PAD)
    lines[:, :, :PROMPT] = prompts[:, None]
    for at in range(1, ANSWER):
        lines[:, at, PROMPT : PROMPT + at] = answers[:, :at]
    tokens = answers.reshape(-1)
    is_token = tokens != PAD
    return lines.reshape(-1, LINE), np.where(is_token, tokens, 0), is_token


def log_probs(weights: Weights, prompts: Tokens, answers: Tokens) -> Array:
    """The log-probability of each token of answers that another policy gave."""
    lines, tokens, is_token = unroll(prompts, answers)
    log_p, _, _ = forward(weights, lines)
    chosen = np.where(is_token, log_p[np.arange(len(tokens)), tokens], 0)
    return chosen.reshape(answers.shape).astype(np.float32)
