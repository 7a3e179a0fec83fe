/* cases.h - the sets that are run, from a seed
 *
 * Lengths are log-normal with a part that is the prompt's and a part that is each
 * sample's, cut at a cap: log L = mu + sigma * (sqrt(rho) * prompt + sqrt(1 - rho) *
 * sample). The history that a warm run starts with has other samples of the same
 * prompts, drawn at an earlier state of the weights: its prompt part differs by 2.2 % of
 * the variance. A trace has no prompts that come again: of it the lengths of the requests
 * before those that run are known. No request's own length is in any history.
 */
#ifndef BENCH_GENERATE_CASES_H
#define BENCH_GENERATE_CASES_H

#include "sim.h"

enum { CASES = 10, CASE_PAST = 8 };

struct case_set {
    struct sim_case c;
    uint32_t *past; /* lengths of earlier samples of each prompt, groups * CASE_PAST */
};

const char *case_name(int number);
/* 0, or -1: out of memory, or (Azure) its file is not there. */
int case_make(int number, uint64_t seed, const char *data, struct case_set *out);
void case_free(struct case_set *c);
/* What is known before: NULL if out of memory. */
struct ms_lengths *case_lengths(const struct case_set *c, bool warm);

#endif
