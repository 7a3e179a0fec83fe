/* cases.c - synthetic sets, and arrivals of a public trace */
#include "cases.h"

#include "base/cleanup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DRIFT 0.022 /* of the variance: what the weights' change explains */

static const struct shape {
    const char *name;
    double mu, sigma, rho;
    uint32_t cap, groups, samples, replicas, slots, prompt;
    uint64_t kv;
    double a, beta;
    uint32_t turns;
    double rate; /* times the trace's own */
} shapes[CASES] = {
    /* like DeepCoder: mean 9,400, cap 16,000, at which 15 % are cut, correlation 0.88 */
    {"S1", 9.077, 0.582, 0.88, 16000, 80, 8, 4, 32, 512, 0, 8e-3, 6e-5, 0, 0},
    {"S2", 9.077, 0.582, 0.88, 16000, 80, 8, 8, 32, 512, 0, 8e-3, 6e-5, 0, 0},
    {"S3", 9.077, 0.582, 0.88, 16000, 80, 8, 4, 64, 512, 400000, 8e-3, 6e-5, 0, 0},
    {"S4", 7.6, 1.0, 0.65, 16384, 200, 8, 16, 64, 512, 0, 8e-3, 6e-5, 0, 0},
    {"S5", 8.5, 0.9, 0.65, 32768, 400, 8, 16, 128, 512, 600000, 8e-3, 6e-5, 0, 0},
    /* all admitted, steps that grow with the batch */
    {"S6", 7.056, 0.988, 0.648, 16384, 64, 8, 8, 128, 512, 0, 6e-3, 3e-4, 0, 0},
    {"S7", 7.6, 1.0, 0.05, 16384, 200, 8, 16, 64, 512, 0, 8e-3, 6e-5, 0, 0},
    /* sessions of 4 turns whose context grows */
    {"turns", 5.5, 0.8, 0.3, 4096, 1600, 1, 8, 16, 2048, 0, 8e-3, 6e-5, 4, 0},
    {"azure", 0, 0, 0, 4096, 1500, 1, 8, 32, 0, 0, 8e-3, 6e-5, 0, 10},
    {"azure busy", 0, 0, 0, 4096, 1500, 1, 8, 32, 0, 0, 8e-3, 6e-5, 0, 16},
};

const char *case_name(int number)
{
    return shapes[number].name;
}

/* ---- random numbers ---------------------------------------------------------------- */

static double unit(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return ((double)(*seed >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *seed)
{
    double r = sqrt(-2 * log(unit(seed)));

    return r * cos(2 * M_PI * unit(seed));
}

static uint32_t length_of(const struct shape *s, double prompt, uint64_t *seed)
{
    double x =
        s->mu + s->sigma * (sqrt(s->rho) * prompt + sqrt(1 - s->rho) * normal(seed));

    return (uint32_t)fmin(fmax(exp(x), 1), s->cap);
}

/* ---- sets -------------------------------------------------------------------------- */

/* What earlier steps saw of a prompt, in the same draws as its group where that has as many
 * samples; a turn of a session was seen as often. */
static void draw(const struct shape *s, struct case_set *out, uint64_t seed)
{
    uint64_t more = seed ^ UINT64_C(0xA24BAED4963EE407);

    for (uint32_t g = 0; g < s->groups; g++) {
        double effect = normal(&seed);
        double before = effect + sqrt(DRIFT / fmax(s->rho, 0.02)) * normal(&seed);

        out->c.keys[g] = (s->turns ? g / s->turns : g) + 1;
        for (uint32_t k = 0; k < s->samples; k++) {
            size_t i = (size_t)g * s->samples + k;

            out->c.requests[i] = (struct sim_request){
                .length = length_of(s, effect, &seed), .prompt = s->prompt};
            out->past[(size_t)g * CASE_PAST + k] = length_of(s, before, &seed);
        }
        for (uint32_t k = s->samples; k < CASE_PAST; k++)
            out->past[(size_t)g * CASE_PAST + k] = length_of(s, before, &more);
    }
}

/* A turn's prompt is all that came before it. */
static void grow_contexts(const struct shape *s, struct case_set *out)
{
    for (uint32_t g = 1; g < s->groups; g++)
        if (g % s->turns > 0)
            out->c.requests[g].prompt =
                out->c.requests[g - 1].prompt + out->c.requests[g - 1].length + 200;
    out->c.tool = 0.5;
}

/* "2023-11-16 18:17:03.9799600,374,44", from a row that the seed says. As many requests
 * that came before are what is known of lengths: what runs is not among them. */
static int
read_azure(const struct shape *s, struct case_set *out, const char *path, uint64_t seed)
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = fopen(path, "r");
    double first = -1, h, min, sec;
    uint32_t n = 0, past = 0, skip = (uint32_t)(seed % 20) * 400;
    unsigned in, made;
    char line[128];

    if (!f)
        return -1;
    while (n < out->c.groups && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*d-%*d-%*d %lf:%lf:%lf,%u,%u", &h, &min, &sec, &in, &made) !=
            5)
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        made = made > 0 ? made : 1;
        if (past < s->groups) {
            out->past[(size_t)past++ * CASE_PAST] = made;
            continue;
        }
        sec += 3600 * h + 60 * min;
        first = first < 0 ? sec : first;
        out->c.keys[n] = n + 1;
        out->c.requests[n] = (struct sim_request){
            .length = made, .prompt = in, .arrives = (sec - first) / s->rate};
        n++;
    }
    out->c.groups = n;
    return n > 0 ? 0 : -1;
}

void case_free(struct case_set *c)
{
    free(c->c.requests);
    free(c->c.keys);
    free(c->past);
    *c = (struct case_set){0};
}

int case_make(int number, uint64_t seed, const char *data, struct case_set *out)
{
    const struct shape *s = &shapes[number];
    size_t n = (size_t)s->groups * s->samples;
    int rc = 0;

    *out = (struct case_set){
        .c = {.name = s->name,
              .groups = s->groups,
              .samples = s->samples,
              .requests = calloc(n, sizeof *out->c.requests),
              .keys = calloc(n, sizeof *out->c.keys),
              .replicas = s->replicas,
              .slots = s->slots,
              .max_new = s->cap,
              .kv = s->kv,
              .a = s->a,
              .beta = s->beta,
              .prefill = 20e-6,
              .turns = s->turns},
        .past = calloc((size_t)s->groups * CASE_PAST, sizeof *out->past)};
    if (!out->c.requests || !out->c.keys || !out->past)
        rc = -1;
    else if (s->rate > 0)
        rc = read_azure(s, out, data, seed);
    else
        draw(s, out, (seed + 1) * UINT64_C(0x9E3779B97F4A7C15));
    if (rc == 0 && s->turns)
        grow_contexts(s, out);
    if (rc < 0)
        case_free(out);
    return rc;
}

struct ms_lengths *case_lengths(const struct case_set *c, bool warm)
{
    struct ms_lengths *l = ms_lengths_create(4096);
    bool is_trace = c->c.samples == 1 && c->c.turns == 0; /* its prompts have no past */

    for (uint32_t g = 0; l && warm && g < c->c.groups; g++) {
        struct ms_length_sums sums = {0};
        uint32_t cut[CASE_PAST], cuts = 0;
        const uint32_t *past = c->past + (size_t)g * CASE_PAST;
        uint64_t key = is_trace ? 0 : c->c.keys[g];

        for (uint32_t t = c->c.turns ? g % c->c.turns : 0; t > 0; t--)
            key = ms_lengths_next_turn(key);
        for (uint32_t k = 0; k < CASE_PAST && past[k] > 0; k++)
            if (past[k] < c->c.max_new)
                ms_length_sums_add(&sums, past[k]);
            else
                cut[cuts++] = past[k];
        ms_lengths_learn(l, key, &sums, cut, cuts, 0);
    }
    return l;
}
