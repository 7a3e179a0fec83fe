/* speed.c - events and decisions per second of the scheduler itself, and its memory
 *
 * 64 replicas and 100,000 live requests; each round reports progress of eight running
 * requests and the end of one, and as groups end others are submitted.
 */
#include "sim.h"

#include "base/cleanup.h"

#include <assert.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { REPLICAS = 64, SLOTS = 256, LIVE = 100000, SAMPLES = 8, EVENTS = 4000000 };

struct run {
    uint64_t id;
    uint32_t attempt, tokens;
};

struct speed {
    struct ms_scheduler *s;
    struct run *running;
    size_t count;
    uint64_t next, seed, events, decisions, batch;
    int64_t now_ns;
    double ends; /* s in events that end a request */
    uint64_t end_count;
};

static uint32_t roll(struct speed *p, uint32_t n)
{
    p->seed ^= p->seed << 13;
    p->seed ^= p->seed >> 7;
    p->seed ^= p->seed << 17;
    return (uint32_t)((p->seed >> 33) % n);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void tell(struct speed *p, struct ms_generate_event e)
{
    const struct ms_generate_decision *d;
    size_t count;
    double from = e.what == MS_FINISHED ? seconds() : 0;
    int rc = ms_scheduler_step(p->s, &e, p->now_ns += 1000, &d, &count);

    assert(rc == 0);
    if (e.what == MS_FINISHED) {
        p->ends += seconds() - from;
        p->end_count++;
    }
    p->events++;
    p->decisions += count;
    for (size_t i = 0; i < count; i++)
        if (d[i].what == MS_SEND)
            p->running[p->count++] = (struct run){
                .id = d[i].id, .attempt = d[i].attempt, .tokens = d[i].tokens};
}

static void submit(struct speed *p)
{
    p->next++;
    tell(p,
         (struct ms_generate_event){.what = MS_SUBMIT,
                                    .id = p->next,
                                    .key = p->next % 5000 + 1,
                                    .samples = SAMPLES,
                                    .prompt = 500,
                                    .max_new = 16384,
                                    .replica = MS_NOWHERE});
}

static void finish_one(struct speed *p)
{
    uint32_t i = roll(p, (uint32_t)p->count);
    struct run r = p->running[i];

    p->running[i] = p->running[--p->count];
    tell(p,
         (struct ms_generate_event){.what = MS_FINISHED,
                                    .id = r.id,
                                    .attempt = r.attempt,
                                    .tokens = r.tokens + 1 + roll(p, 3000)});
}

static void consume(struct speed *p)
{
    uint64_t ready = ms_scheduler_stats(p->s).ready;

    if (ready < 64)
        return;
    p->batch++;
    tell(p, (struct ms_generate_event){.what = MS_PULL, .id = p->batch, .samples = 64});
    tell(p, (struct ms_generate_event){.what = MS_CONSUMED, .id = p->batch});
}

static void round_of_events(struct speed *p)
{
    for (int k = 0; k < 8; k++) {
        struct run *r = &p->running[roll(p, (uint32_t)p->count)];

        r->tokens += 8;
        tell(p,
             (struct ms_generate_event){.what = MS_PROGRESS,
                                        .id = r->id,
                                        .attempt = r->attempt,
                                        .tokens = r->tokens});
    }
    finish_one(p);
    if (p->events % 512 < 9)
        consume(p);
    while (ms_scheduler_stats(p->s).live + ms_scheduler_stats(p->s).held * SAMPLES <
           LIVE)
        submit(p);
}

int speed_run(void)
{
    struct ms_lengths *lengths = ms_lengths_create(10000);
    struct ms_scheduler_options o = {.policy = &ms_policy_auto, .seed = 1};
    struct speed p = {.running =
                          calloc((size_t)REPLICAS * SLOTS + 1, sizeof *p.running),
                      .seed = 88172645463325252};
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd, bytes;
    double from, took;

    p.s = lengths ? ms_scheduler_create(&o, lengths, NULL) : NULL;
    if (!p.s || !p.running) {
        ms_scheduler_destroy(p.s);
        ms_lengths_destroy(lengths);
        free(p.running);
        return -1;
    }
    for (uint32_t i = 0; i < REPLICAS; i++)
        tell(&p,
             (struct ms_generate_event){
                 .what = MS_REPLICA_UP, .replica = i, .epoch = 1, .samples = SLOTS});
    for (int i = 0; i < LIVE / SAMPLES; i++)
        submit(&p);
    bytes = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    tell(&p, (struct ms_generate_event){.what = MS_TICK});
    p.events = p.decisions = 0;
    from = seconds();
    while (p.events < EVENTS)
        round_of_events(&p);
    took = seconds() - from;
    printf("speed\t%.0f events/s\t%.0f decisions/s\t%.0f ns/event\t%.0f "
           "bytes/request\t"
           "%.0f ns to end one and send the next\n",
           (double)p.events / took,
           (double)p.decisions / took,
           took / (double)p.events * 1e9,
           (double)bytes / LIVE,
           p.ends / (double)p.end_count * 1e9);
    ms_scheduler_destroy(p.s);
    ms_lengths_destroy(lengths);
    free(p.running);
    return 0;
}
