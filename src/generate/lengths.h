/* lengths.h - what is known of how long answers will be
 *
 * Log-lengths are modelled as prompt effect + sampling noise, both normal. What is known
 * of a group is put together by precision: the prior of all groups, the prompt's own
 * history from earlier steps, and siblings that have finished. Nothing is trained;
 * the variances are measured from groups as they end. What has been generated already is
 * a lower bound, also of an answer that was cut at its limit or that nobody waited for.
 *
 * The history is a table of fixed size, least recently used out first, that is kept
 * across restarts with save and load. Pure.
 */
#ifndef MS_GENERATE_LENGTHS_H
#define MS_GENERATE_LENGTHS_H

#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_lengths;

/* Samples of one group that have ended, as sums of logarithms. */
struct ms_length_sums {
    double sum, squares;
    uint32_t n;
};
void ms_length_sums_add(struct ms_length_sums *s, uint32_t tokens);

/* What a sample of a group is expected to be: log-normal around `mu`. How far from it one
 * sample is has deviation `within`; `mu` itself is uncertain by `spread`; `sigma` is both. */
struct ms_length_guess {
    float mu, sigma, within, spread;
};

/* `prompts`: how many the history keeps; 24 bytes each. NULL: out of memory. */
struct ms_lengths *ms_lengths_create(size_t prompts);
void ms_lengths_destroy(struct ms_lengths *l); /* NULL is fine */

/* A group is over: into the history and the prior. `ended` are its samples that have ended
 * by themselves, `least` the tokens of those that were cut: they would have been longer. */
void ms_lengths_learn(struct ms_lengths *l,
                      uint64_t key,
                      const struct ms_length_sums *ended,
                      const uint32_t *least,
                      size_t least_count,
                      uint32_t version);

/* The same of a group that is not over; `least` are also the tokens so far of those that
 * are still running. `hint`: what its caller expects of a sample, in the place of all that is
 * known but for the group's own samples; 0: nothing. */
struct ms_length_guess ms_lengths_guess(const struct ms_lengths *l,
                                        uint64_t key,
                                        uint32_t hint,
                                        const struct ms_length_sums *ended,
                                        const uint32_t *least,
                                        size_t least_count);
/* What the prompt's history is worth, in samples; 0: it has none. */
double ms_lengths_samples(const struct ms_lengths *l, uint64_t key);
bool ms_lengths_has(const struct ms_lengths *l, uint64_t key);

/* The key of the next turn of a session: each turn has a history of its own. 0 of 0. */
uint64_t ms_lengths_next_turn(uint64_t key);

/* How many groups have ended, of late: the oldest ones fade. */
double ms_lengths_groups(const struct ms_lengths *l);

/* The share of the variance that the prompt explains, 0 to 1, as measured so far. */
double ms_lengths_icc(const struct ms_lengths *l);

/* Tokens still to come, expected, of a sample that has `generated` and ends at `max`. */
double ms_length_remaining(struct ms_length_guess g, uint32_t generated, uint32_t max);
/* Tokens still to come that this share of such samples, 0 to 1, stay below. */
double ms_length_below(struct ms_length_guess g,
                       double share,
                       uint32_t generated,
                       uint32_t max);
/* One of many that could be: `mu` and a number from 0 to 1 in, tokens still to come out. */
double ms_length_draw(
    struct ms_length_guess g, double mu, double unit, uint32_t generated, uint32_t max);
/* A mu that could be. */
double ms_length_draw_mu(struct ms_length_guess g, double unit);

/* As bytes, in parts, so that a lock around it is not held for long; what is
 * learnt between two parts may be in them or not. 1: a part was added, go on; 0: it is whole;
 * -ENOMEM. `s` begins as zeros, `out` empty. */
struct ms_lengths_saving {
    size_t row;
    uint64_t count;
};
int ms_lengths_save(const struct ms_lengths *l,
                    struct ms_lengths_saving *s,
                    struct ms_buf *out);
/* And back. 0, -ENOMEM; -EBADMSG: not such bytes, nothing has changed. */
int ms_lengths_load(struct ms_lengths *l,
                    const void *bytes,
                    size_t len,
                    struct ms_error *err);

#endif
