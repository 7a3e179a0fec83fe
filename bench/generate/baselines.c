/* baselines.c - round robin, least loaded, sticky ones, Seer-like, TailSieve-like, oracles */
#include "baselines.h"

#include "base/cleanup.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A session's turns that are to come count with it. */
static uint32_t true_length(const struct ms_scheduler *s,
                            const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = ms_gen_group_at(s, q->group);
    uint64_t i = (g->id - 1) * sim_now->samples + q->seq, length = 0;
    uint64_t end = sim_now->turns ? (i / sim_now->turns + 1) * sim_now->turns : i + 1;

    for (; i < end; i++)
        length += sim_now->requests[i].length;
    return (uint32_t)length;
}

static bool is_open(const struct ms_scheduler *s, uint32_t replica)
{
    return replica < s->replica_count && s->replicas[replica].state == MS_REPLICA_OPEN;
}

/* Where a sibling of the same group went first; MS_NOWHERE: it is the first. */
static uint32_t of_siblings(const struct ms_scheduler *s,
                            const struct ms_gen_request *q)
{
    uint32_t i = ms_gen_group_at(s, q->group)->first;

    for (; i != MS_NONE; i = ms_gen_request_at(s, i)->next)
        if (ms_gen_request_at(s, i)->attempt > 0 &&
            is_open(s, ms_gen_request_at(s, i)->replica))
            return ms_gen_request_at(s, i)->replica;
    return MS_NOWHERE;
}

/* Group g to replica g mod R, as batches are divided over data-parallel ranks. */
static uint32_t place_round_robin(struct ms_scheduler *s,
                                  const struct ms_gen_request *q)
{
    uint64_t g = ms_gen_group_at(s, q->group)->id - 1;

    for (uint32_t i = 0; i < s->replica_count; i++) {
        uint32_t to = (uint32_t)((g + i) % s->replica_count);

        if (is_open(s, to))
            return to;
    }
    return MS_NOWHERE;
}

/* Led by the original: the replicas that the rule allows are printed, and the one that the
 * original has chosen is read. `only`: that one, or MS_NOWHERE: any with the fewest. */
static uint32_t
ask(const struct ms_scheduler *s, const struct ms_gen_request *q, uint32_t only)
{
    uint64_t group = ms_gen_group_at(s, q->group)->id - 1;
    uint32_t least = UINT32_MAX, chosen = MS_NOWHERE;

    for (uint32_t i = 0; i < s->replica_count; i++)
        if (is_open(s, i) && s->replicas[i].in_flight < least)
            least = s->replicas[i].in_flight;
    printf("? %lu %lu",
           (unsigned long)(group * sim_now->samples + q->seq),
           (unsigned long)(sim_now->turns ? group / sim_now->turns : group));
    for (uint32_t i = 0; i < s->replica_count; i++)
        if (is_open(s, i) &&
            (only == MS_NOWHERE ? s->replicas[i].in_flight == least : i == only))
            printf(" %u", i);
    printf("\n");
    fflush(stdout);
    if (scanf("%u", &chosen) != 1 || !is_open(s, chosen))
        exit(1); /* the original has gone */
    return chosen;
}

/* This one, or MS_NOWHERE: one with the fewest, ties by lot. */
static uint32_t
choose(struct ms_scheduler *s, const struct ms_gen_request *q, uint32_t only)
{
    if (sim_is_led)
        return ask(s, q, only);
    return only != MS_NOWHERE ? only : ms_place_fewest(s, 0);
}

static uint32_t place_least(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return choose(s, q, MS_NOWHERE);
}

/* verl: fewest in flight when it is sent, ties by lot; a session stays for ever. */
static uint32_t place_verl(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return choose(s, q, is_open(s, q->replica) ? q->replica : MS_NOWHERE);
}

/* ROLL's map of prompts to ranks, of the run that goes on. */
enum { ROLL_RUNNING_MAX = 128, ROLL_PROMPTS_MAX = 4096 };
static struct roll_rank {
    bool is_known;
    uint32_t rank, version; /* an abort of all, for new weights, clears it */
} roll_ranks[ROLL_PROMPTS_MAX];

/* The least loaded rank below the limit, of equal ones the first. */
static uint32_t roll_acquire(const struct ms_scheduler *s)
{
    uint32_t best = MS_NOWHERE;

    for (uint32_t i = 0; i < s->replica_count; i++)
        if (ms_gen_replica_has_room(&s->replicas[i], 0) &&
            (best == MS_NOWHERE ||
             s->replicas[i].in_flight < s->replicas[best].in_flight))
            best = i;
    return best;
}

/* ROLL: the first of a prompt goes to the least loaded rank, and while all are full the
 * firsts wait one behind the other, before all else. The others of a prompt wait for its
 * rank, each prompt for itself. */
static uint32_t place_roll(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    uint64_t prompt = ms_gen_group_at(s, q->group)->id - 1;
    struct roll_rank *of = &roll_ranks[prompt];
    struct ms_gen_request *waits = &s->requests[q - s->requests];
    uint32_t to;

    assert(prompt < ROLL_PROMPTS_MAX);
    if (s->stats.sent == 0)
        memset(roll_ranks, 0, sizeof roll_ranks);
    if (of->is_known && of->version == s->weights_version && is_open(s, of->rank)) {
        if (ms_gen_replica_has_room(&s->replicas[of->rank], 0))
            return of->rank;
        waits->replica = of->rank;
        waits->since_ns = s->now_ns; /* or it would be parked for too long already */
        waits->rank = 1 + (float)(prompt * sim_now->samples + q->seq);
        return MS_PARK;
    }
    to = roll_acquire(s);
    if (to != MS_NOWHERE)
        *of = (struct roll_rank){true, to, s->weights_version};
    return to;
}

/* sglang's cache_aware, 32 / 1.1: siblings share their prompt, so they match. */
static uint32_t place_cache_aware(struct ms_scheduler *s,
                                  const struct ms_gen_request *q)
{
    uint32_t most = 0, least = UINT32_MAX, warm = of_siblings(s, q);

    for (uint32_t i = 0; i < s->replica_count; i++) {
        uint32_t n = s->replicas[i].in_flight;

        if (!is_open(s, i))
            continue;
        most = n > most ? n : most;
        least = n < least ? n : least;
    }
    if (warm == MS_NOWHERE && is_open(s, q->replica))
        warm = q->replica;
    if (most - least > 32 && most > 1.1 * least)
        warm = MS_NOWHERE;
    return choose(s, q, warm);
}

/* Seer: one probe of each group, shortest first; then the group's longest finished sample,
 * longest first, the cap where there is none. Divided, to the most free cache; where that is
 * not short, to the fewest requests, and of equals to where it was. */
static float rank_seer(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = ms_gen_group_at(s, q->group);
    uint32_t longest = 0;

    if (q->seq == 0)
        return -1e9F + (float)q->generated;
    for (uint32_t i = g->first; i != MS_NONE; i = ms_gen_request_at(s, i)->next)
        if (ms_gen_request_at(s, i)->state == MS_REQUEST_DONE &&
            ms_gen_request_at(s, i)->generated > longest)
            longest = ms_gen_request_at(s, i)->generated;
    return -(float)(longest > 0 ? longest : q->max_new);
}

static uint32_t place_seer(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    uint32_t best = MS_NOWHERE, need = q->prompt + q->generated + 2048;

    if (sim_now->kv == 0) {
        best = ms_place_fewest(s, 0);
        return best != MS_NOWHERE && is_open(s, q->replica) &&
                       s->replicas[q->replica].in_flight <= s->replicas[best].in_flight
                   ? q->replica
                   : best;
    }
    for (uint32_t i = 0; i < s->replica_count; i++)
        if (ms_gen_replica_has_room(&s->replicas[i], need) &&
            (best == MS_NOWHERE || s->replicas[i].kv < s->replicas[best].kv))
            best = i;
    return best;
}

static uint32_t reserve_chunk(const struct ms_scheduler *s,
                              const struct ms_gen_request *q)
{
    (void)s;
    (void)q;
    return 2048;
}

/* ---- plans at the start ------------------------------------------------------------ */

/* Requests by length, cut into runs so that the longest a * max + beta * sum is least: the
 * long ones share a replica with few others. */
static double plan_length(const struct ms_scheduler *s, uint32_t i, bool oracle)
{
    const struct ms_gen_request *q = ms_gen_request_at(s, i);

    if (oracle)
        return true_length(s, q);
    return ms_length_remaining(ms_gen_group_at(s, q->group)->guess, 0, q->max_new);
}

struct planned {
    double length;
    uint32_t request;
};

static int longest_first(const void *a, const void *b)
{
    double x = ((const struct planned *)a)->length,
           y = ((const struct planned *)b)->length;

    return x > y ? -1 : x < y;
}

static uint32_t runs_within(const struct planned *p, size_t n, double limit)
{
    uint32_t runs = 0;
    double sum = 0, first = 0;
    uint32_t in = 0;

    for (size_t i = 0; i < n; i++) {
        if (runs == 0 ||
            sim_now->a * first + sim_now->beta * (sum + p[i].length) > limit ||
            in >= sim_now->slots) {
            runs++;
            first = p[i].length;
            sum = 0;
            in = 0;
        }
        sum += p[i].length;
        in++;
    }
    return runs;
}

static void
assign(struct ms_scheduler *s, const struct planned *p, size_t n, double limit)
{
    uint32_t run = MS_NOWHERE, in = 0;
    double sum = 0, first = 0;

    for (size_t i = 0; i < n; i++) {
        if (run == MS_NOWHERE ||
            sim_now->a * first + sim_now->beta * (sum + p[i].length) > limit ||
            in >= sim_now->slots) {
            run++;
            first = p[i].length;
            sum = 0;
            in = 0;
        }
        sum += p[i].length;
        in++;
        ms_gen_request_at(s, p[i].request)->replica =
            run < s->replica_count ? run : (uint32_t)s->replica_count - 1;
    }
}

static void plan(struct ms_scheduler *s, bool oracle)
{
    size_t n = s->queue.count;
    MS_CLEANUP(ms_cleanup_free) struct planned *p = calloc(n, sizeof *p);
    double low = 0, high = 1e6;

    for (size_t i = 0; i < n; i++)
        p[i] = (struct planned){plan_length(s, s->queue.at[i].index, oracle),
                                s->queue.at[i].index};
    qsort(p, n, sizeof *p, longest_first);
    for (int i = 0; i < 60; i++) {
        double at = (low + high) / 2;

        *(runs_within(p, n, at) <= s->replica_count ? &high : &low) = at;
    }
    assign(s, p, n, high);
}

static uint32_t
place_planned(struct ms_scheduler *s, const struct ms_gen_request *q, bool oracle)
{
    bool fits =
        sim_now->groups * sim_now->samples <= sim_now->replicas * sim_now->slots;

    if (fits && s->stats.sent == 0)
        plan(s, oracle);
    if (fits && q->attempt == 0 && ms_gen_replica_has_room(&s->replicas[q->replica], 0))
        return q->replica;
    return ms_place_fewest(s, q->prompt + q->generated);
}

static uint32_t place_tailsieve(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return place_planned(s, q, false);
}

static uint32_t place_oracle(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return place_planned(s, q, true);
}

static float rank_oracle(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return -(float)true_length(s, q);
}

static uint32_t place_fits(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    if (sim_now->turns) /* the oracle knows lengths, and where prefixes are warm */
        return ms_policy_auto.place(s, q);
    return ms_place_fewest(s, q->prompt + q->generated);
}

static uint32_t unpark_oracle(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return ms_policy_auto.unpark(s, q);
}

static const struct ms_policy
    round_robin = {.name = "rr", .place = place_round_robin},
    least = {.name = "least", .place = place_least},
    verl = {.name = "verl", .place = place_verl},
    roll = {.name = "roll", .place = place_roll},
    cache = {.name = "cache_aware", .place = place_cache_aware},
    sticky = {.name = "sticky", .place = place_verl}, /* the same rule */
    seer = {.name = "seer",
            .rank = rank_seer,
            .place = place_seer,
            .reserve = reserve_chunk},
    tailsieve = {.name = "tailsieve", .place = place_tailsieve},
    lpt = {.name = "lpt",
           .rank = rank_oracle,
           .place = place_fits,
           .unpark = unpark_oracle},
    tail = {.name = "tail", .rank = rank_oracle, .place = place_oracle};

#define COLD .no_history = true, .no_steps = true

const struct baseline baselines[] = {
    {"round robin", &round_robin, .engine_queue = true},
    {"least loaded", &least, .engine_queue = true},
    {"verl sticky", &verl, .engine_queue = true},
    {"ROLL PromptAffinity", &roll, .engine_queue = true, .limit = ROLL_RUNNING_MAX},
    {"sglang cache_aware", &cache, .engine_queue = true},
    {"sticky least loaded", &sticky, .engine_queue = true},
    {"Seer-like", &seer, .chunk = 2048, .progress = true, COLD},
    {"TailSieve-like", &tailsieve, .engine_queue = false},
    {"global FIFO", &ms_policy_fifo, .engine_queue = false},
    {"longest, cold", &ms_policy_longest, COLD, .progress = true},
    {"longest", &ms_policy_longest, .progress = true},
    {"Muster, cold", &ms_policy_auto, COLD, .progress = true, .rebalance = 2},
    {"Muster, no history",
     &ms_policy_auto,
     .no_history = true,
     .progress = true,
     .rebalance = 2},
    {"Muster, no steps",
     &ms_policy_auto,
     .no_steps = true,
     .progress = true,
     .rebalance = 2},
    {"Muster", &ms_policy_auto, .progress = true, .rebalance = 2},
    {"oracle longest first", &lpt, .engine_queue = false},
    {"oracle plan", &tail, .only_fits = true},
};
const int baseline_count = MS_COUNT(baselines);
