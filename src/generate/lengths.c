/* lengths.c - the history of lengths per prompt, and what follows from it */
#include "generate/lengths.h"

#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { WAYS = 8 };    /* entries that a key can be at */
enum { PART = 1024 }; /* rows that are saved at once */

#define SAMPLES_MAX  32.0 /* what the past is worth at most, in samples */
#define FADE         0.7  /* of the past, at the first visit by another version */
#define DRIFT        0.03 /* of the variance: lengths move while the weights do */
#define TURN         UINT64_C(0x9FB21C651E98DF25)
#define PRIOR_KEEP   0.99 /* of the prior, at each group */
#define HINT_SAMPLES 4.0  /* what a caller's hint is worth */
#define CUT_MAX                                                                        \
    0.34 /* of those that ended: with more cut, the model would measure itself */
#define LEARN_MIN 0.5 /* samples: with less a group teaches nothing */

/* A prompt; key 0 is none. */
struct length_entry {
    uint64_t key;
    float mean, samples;
    uint32_t version, used;
};

/* All groups: the mean of their means, its variance, and that within groups. */
struct length_prior {
    double weight, mean, of_means, within, per_mean; /* per_mean: E[1 / n] */
};

struct ms_lengths {
    struct length_entry *at;
    size_t rows; /* of WAYS entries */
    uint32_t clock;
    struct length_prior prior;
};

/* Before any group has ended: half of a thousand tokens, within a factor of e. */
static const struct length_prior unknown = {
    .weight = 0, .mean = 6.2, .of_means = 0.6, .within = 0.4, .per_mean = 0};

void ms_length_sums_add(struct ms_length_sums *s, uint32_t tokens)
{
    double x = log(tokens > 0 ? tokens : 1);

    s->sum += x;
    s->squares += x * x;
    s->n++;
}

struct ms_lengths *ms_lengths_create(size_t prompts)
{
    struct ms_lengths *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->rows = prompts / WAYS + 1;
    l->prior = unknown;
    l->at = calloc(l->rows * WAYS, sizeof *l->at);
    if (!l->at) {
        free(l);
        return NULL;
    }
    return l;
}

void ms_lengths_destroy(struct ms_lengths *l)
{
    if (!l)
        return;
    free(l->at);
    free(l);
}

/* ---- the table --------------------------------------------------------------------- */

static struct length_entry *row_of(const struct ms_lengths *l, uint64_t key)
{
    uint64_t h = key * UINT64_C(0x9E3779B97F4A7C15);

    return l->at + ((h ^ (h >> 29)) % l->rows) * WAYS;
}

static struct length_entry *entry_find(const struct ms_lengths *l, uint64_t key)
{
    struct length_entry *row = row_of(l, key);

    for (int i = 0; i < WAYS; i++)
        if (row[i].key == key && key != 0)
            return &row[i];
    return NULL;
}

/* Where a new key goes: over an empty one or the least recently used. */
static struct length_entry *entry_victim(const struct ms_lengths *l, uint64_t key)
{
    struct length_entry *row = row_of(l, key), *oldest = row;

    for (int i = 0; i < WAYS; i++) {
        if (row[i].key == 0)
            return &row[i];
        if (row[i].used < oldest->used)
            oldest = &row[i];
    }
    return oldest;
}

bool ms_lengths_has(const struct ms_lengths *l, uint64_t key)
{
    return entry_find(l, key) != NULL;
}

double ms_lengths_samples(const struct ms_lengths *l, uint64_t key)
{
    const struct length_entry *e = entry_find(l, key);

    return e ? e->samples : 0;
}

uint64_t ms_lengths_next_turn(uint64_t key)
{
    uint64_t next = (key ^ key >> 32) * UINT64_C(0xD6E8FEB86659FD93);

    next = (next ^ next >> 29) + TURN;
    return key == 0 ? 0 : next == 0 ? TURN : next;
}

static void
entry_learn(struct ms_lengths *l, uint64_t key, double sum, double n, uint32_t version)
{
    struct length_entry *e = entry_find(l, key);
    double old;

    if (!e) {
        e = entry_victim(l, key);
        *e = (struct length_entry){.key = key};
    }
    old = fmin(e->samples, SAMPLES_MAX) * (e->version == version ? 1 : FADE);
    e->mean = (float)((e->mean * old + sum) / (old + n));
    e->samples = (float)(old + n);
    e->version = version;
    e->used = ++l->clock;
}

/* ---- the prior --------------------------------------------------------------------- */

/* A group of `n` samples with that mean of logarithms; within: their variance, or less than
 * 0 where it says nothing. */
static void prior_learn(struct length_prior *p, double mean, double n, double within)
{
    double keep = p->weight * PRIOR_KEEP, all = keep + 1, off = mean - p->mean;

    if (p->weight == 0) {
        p->mean = mean; /* the variances stay assumed until there are a few */
        p->weight = 1;
        p->per_mean = 1 / n;
        return;
    }
    p->mean += off / all;
    p->of_means += (off * off * keep / all - p->of_means) / fmax(all, 8);
    p->per_mean += (1 / n - p->per_mean) / all;
    if (within >= 0)
        p->within += (within - p->within) / all;
    p->weight = all;
}

/* The variance between prompts, without what sampling adds to a group's mean. */
static double between(const struct length_prior *p)
{
    return fmax(p->of_means - p->within * p->per_mean, 0.01 * p->of_means + 1e-4);
}

double ms_lengths_groups(const struct ms_lengths *l)
{
    return l->prior.weight;
}

double ms_lengths_icc(const struct ms_lengths *l)
{
    double b = between(&l->prior);

    return b / (b + l->prior.within + 1e-9);
}

/* ---- guesses ----------------------------------------------------------------------- */

/* The part of a standard normal above z. */
static double above(double z)
{
    return 0.5 * erfc(z * M_SQRT1_2);
}

/* The mean of a standard normal above z, given that it is above z. */
static double mean_above(double z)
{
    if (z > 6)
        return z + 1 / z;
    return exp(-z * z / 2) / sqrt(2 * M_PI) / above(z);
}

/* A belief of a group's mean: normal. */
struct belief {
    double precision, weighted; /* weighted: the mean times the precision */
};

static void believe(struct belief *b, double mean, double precision)
{
    b->precision += precision;
    b->weighted += mean * precision;
}

/* Samples that were cut, or still run, are longer than what they have: taken as the mean of
 * what they can be, which depends on the belief, a few times over. */
static struct belief
with_least(struct belief known, double within, const uint32_t *least, size_t count)
{
    struct belief b = known;
    double deviation = sqrt(within);

    for (int round = 0; round < 4; round++) {
        double mean = b.weighted / b.precision;
        struct belief next = known;

        for (size_t i = 0; i < count; i++) {
            double z, h;

            if (least[i] == 0)
                continue;
            z = (log(least[i]) - mean) / deviation;
            h = mean_above(z);
            /* what being above z tells: nothing far below, much far above */
            believe(&next,
                    mean + deviation * h / fmax(h * (h - z), 1e-3),
                    fmax(h * (h - z), 1e-3) / within);
        }
        b = next;
    }
    return b;
}

/* What is known of a group before its own samples. */
static struct belief
before_group(const struct ms_lengths *l, uint64_t key, uint32_t hint, double within)
{
    const struct length_entry *e = entry_find(l, key);
    double b = between(&l->prior);
    struct belief belief = {0};

    if (hint > 0) { /* as a mean of tokens, not of their logarithms */
        believe(&belief,
                log(hint) - within * (1 + 1 / HINT_SAMPLES) / 2,
                HINT_SAMPLES / within);
        return belief;
    }
    believe(&belief, l->prior.mean, 1 / b);
    if (e)
        believe(&belief, e->mean, 1 / (within / e->samples + DRIFT * (b + within)));
    return belief;
}

static double within_of(const struct ms_lengths *l)
{
    return l->prior.within + 1e-6;
}

struct ms_length_guess ms_lengths_guess(const struct ms_lengths *l,
                                        uint64_t key,
                                        uint32_t hint,
                                        const struct ms_length_sums *ended,
                                        const uint32_t *least,
                                        size_t least_count)
{
    double within = within_of(l);
    struct belief belief = before_group(l, key, hint, within);

    if (ended->n > 0)
        believe(&belief, ended->sum / ended->n, ended->n / within);
    belief = with_least(belief, within, least, least_count);
    return (struct ms_length_guess){.mu = (float)(belief.weighted / belief.precision),
                                    .sigma = (float)sqrt(1 / belief.precision + within),
                                    .within = (float)sqrt(within),
                                    .spread = (float)sqrt(1 / belief.precision)};
}

/* ---- what ended groups teach ------------------------------------------------------- */

/* The variance of a group around its mean: of what has ended, and of the rest what the model
 * says of values above theirs. Less than 0: too little has ended to say anything. */
static double measured_within(const struct ms_length_sums *ended,
                              const uint32_t *least,
                              size_t count,
                              double mean,
                              double within)
{
    double sum = ended->squares - 2 * mean * ended->sum + ended->n * mean * mean;

    if (ended->n < 2 || (double)count > CUT_MAX * ended->n)
        return -1;
    for (size_t i = 0; i < count; i++) {
        double z = (log(least[i] > 0 ? least[i] : 1) - mean) / sqrt(within);

        sum += within * (1 + z * mean_above(z));
    }
    return fmax(sum, 0) / ((double)(ended->n + count) - 1);
}

void ms_lengths_learn(struct ms_lengths *l,
                      uint64_t key,
                      const struct ms_length_sums *ended,
                      const uint32_t *least,
                      size_t least_count,
                      uint32_t version)
{
    double within = within_of(l), sum = ended->sum, n = ended->n;
    struct belief known = before_group(l, key, 0, within), all;

    if (ended->n > 0)
        believe(&known, sum / n, n / within);
    all = with_least(known, within, least, least_count);
    sum += (all.weighted - known.weighted) * within; /* as if they had ended there */
    n += (all.precision - known.precision) * within;
    if (n < LEARN_MIN)
        return;
    prior_learn(&l->prior,
                sum / n,
                n,
                measured_within(ended, least, least_count, sum / n, within));
    if (key != 0)
        entry_learn(l, key, sum, n, version);
}

/* ---- tokens to come ---------------------------------------------------------------- */

double ms_length_remaining(struct ms_length_guess g, uint32_t generated, uint32_t max)
{
    double low = (log(generated > 0 ? generated : 1) - g.mu) / g.sigma;
    double high = (log(max > 0 ? max : 1) - g.mu) / g.sigma;
    double alive = above(low), to_come = max > generated ? max - generated : 0, sum;

    if (alive < 1e-9) /* far beyond what was expected: as long again, at a guess */
        return fmin(to_come, generated);
    sum = exp(g.mu + g.sigma * g.sigma / 2) *
          (above(low - g.sigma) - above(high - g.sigma));
    sum += max * above(high);
    return fmin(fmax(sum / alive - generated, 1), to_come);
}

/* The inverse of the normal distribution (Giles, 2012; single precision is enough). */
static double probit(double p)
{
    static const double near[9] = {2.81022636e-08,
                                   3.43273939e-07,
                                   -3.5233877e-06,
                                   -4.39150654e-06,
                                   0.00021858087,
                                   -0.00125372503,
                                   -0.00417768164,
                                   0.246640727,
                                   1.50140941};
    static const double far[9] = {-0.000200214257,
                                  0.000100950558,
                                  0.00134934322,
                                  -0.00367342844,
                                  0.00573950773,
                                  -0.0076224613,
                                  0.00943887047,
                                  1.00167406,
                                  2.83297682};
    double w = -log(4 * p * (1 - p)), x = 0;
    const double *c = w < 5 ? near : far;

    w = w < 5 ? w - 2.5 : sqrt(w) - 3;
    for (int i = 0; i < 9; i++)
        x = x * w + c[i];
    return M_SQRT2 * x * (2 * p - 1);
}

double ms_length_draw_mu(struct ms_length_guess g, double unit)
{
    return g.mu + g.spread * probit(unit);
}

double ms_length_draw(
    struct ms_length_guess g, double mu, double unit, uint32_t generated, uint32_t max)
{
    double z = (log(generated > 0 ? generated : 1) - mu) / g.within;
    double alive = above(z), left = max > generated ? max - generated : 0;

    if (alive < 1e-6) /* the tail is nearly exponential there */
        return fmin(left, -log(unit) * g.within * generated / fmax(z, 1));
    return fmin(fmax(exp(mu + g.within * -probit(alive * unit)) - generated, 1), left);
}

double ms_length_below(struct ms_length_guess g,
                       double share,
                       uint32_t generated,
                       uint32_t max)
{
    g.within = g.sigma; /* as one sample, not knowing mu */
    return ms_length_draw(g, g.mu, 1 - share, generated, max);
}

/* ---- bytes ------------------------------------------------------------------------- */

static const char magic[8] = "mslen001";

struct head {
    char magic[8];
    uint64_t count;
    struct length_prior prior;
};

static int save_row(const struct length_entry *row, uint64_t *count, struct ms_buf *out)
{
    for (int i = 0; i < WAYS; i++) {
        if (row[i].key == 0)
            continue;
        if (ms_buf_append(out, &row[i], sizeof row[i]) < 0)
            return -ENOMEM;
        ++*count;
    }
    return 0;
}

int ms_lengths_save(const struct ms_lengths *l,
                    struct ms_lengths_saving *s,
                    struct ms_buf *out)
{
    struct head head = {.prior = l->prior};
    size_t end = s->row + PART < l->rows ? s->row + PART : l->rows;
    int rc = 0;

    if (s->row == 0) /* memory that is not used costs nothing, and growing would */
        rc = ms_buf_reserve(out, sizeof head + l->rows * WAYS * sizeof *l->at);
    if (rc == 0 && s->row == 0)
        rc = ms_buf_append(out, &head, sizeof head);
    for (; rc == 0 && s->row < end; s->row++)
        rc = save_row(l->at + s->row * WAYS, &s->count, out);
    if (rc < 0 || s->row < l->rows)
        return rc < 0 ? rc : 1;
    memcpy(head.magic, magic, sizeof head.magic);
    head.count = s->count;
    memcpy(out->data, &head, sizeof head);
    return 0;
}

static bool prior_is_sane(const struct length_prior *p)
{
    return isfinite(p->weight) && isfinite(p->mean) && isfinite(p->of_means) &&
           isfinite(p->within) && isfinite(p->per_mean) && p->weight >= 0 &&
           p->of_means >= 0 && p->within >= 0;
}

static bool entry_is_sane(const struct length_entry *e)
{
    return e->key != 0 && isfinite(e->mean) && isfinite(e->samples) && e->samples > 0;
}

int ms_lengths_load(struct ms_lengths *l,
                    const void *bytes,
                    size_t len,
                    struct ms_error *err)
{
    const char *at = bytes;
    struct length_entry e;
    struct head head;

    if (len < sizeof head || memcmp(at, magic, sizeof magic) != 0)
        return ms_error_set(err, -EBADMSG, "not a history of lengths");
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    len -= sizeof head;
    if (head.count != len / sizeof e || len % sizeof e != 0 ||
        !prior_is_sane(&head.prior))
        return ms_error_set(
            err, -EBADMSG, "a history of lengths that is cut or changed");
    for (size_t i = 0; i < head.count; i++) {
        memcpy(&e, at + i * sizeof e, sizeof e);
        if (!entry_is_sane(&e))
            return ms_error_set(
                err, -EBADMSG, "a history of lengths with nonsense in it");
    }
    l->prior = head.prior;
    for (size_t i = 0; i < head.count; i++) {
        memcpy(&e, at + i * sizeof e, sizeof e);
        *(entry_find(l, e.key) ?: entry_victim(l, e.key)) = e;
        if (e.used > l->clock)
            l->clock = e.used;
    }
    return 0;
}
