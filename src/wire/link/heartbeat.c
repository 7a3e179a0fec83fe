/* heartbeat.c - heartbeats of many links on one timer */
#include "wire/link/heartbeat.h"
#include "base/clock.h"
#include "base/limits.h"
#include "wire/link/link_impl.h"

#include <stdlib.h>
#include <time.h>

struct ms_heartbeat {
    unsigned refs;
    bool is_set;
    int64_t beat_ns; /* the next beat */
    int64_t wake_ns; /* when the timer is due */
    struct ms_timer timer;
    struct ms_list live;   /* longest unheard first */
    struct ms_list silent; /* suspect */
};

/* ---- the timer -------------------------------------------------------------------- */

static void wake_at(struct ms_heartbeat *p, int64_t at_ns, int64_t now_ns)
{
    p->is_set = true;
    p->wake_ns = at_ns > now_ns ? at_ns : now_ns;
    ms_timer_set(&p->timer, p->wake_ns - now_ns);
}

/* The next beat: when the wall clock shows a multiple of the period. So both ends of a link,
 * and all links of a head, beat together, and one wake-up serves many. A clock that is set
 * moves the next one, but never beyond a period. */
static int64_t next_beat_ns(int64_t now_ns)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return now_ns + MS_LINK_BEAT_NS -
           ((int64_t)wall.tv_sec * MS_NS_PER_S + wall.tv_nsec) % MS_LINK_BEAT_NS;
}

/* The order of the list may know less than the connection. */
static void look_at(struct ms_link *l)
{
    int64_t heard_ns = ms_conn_heard_ns(l->conn);

    if (heard_ns > l->heard_ns)
        l->heard_ns = heard_ns;
}

/* This process did not run for a while: what came meanwhile is not read yet, and the other
 * side may have waited for our beat. Do not count that time as silence. */
static void forgive(struct ms_heartbeat *p, int64_t suspended_ns, int64_t now_ns)
{
    ms_list_each (l, &p->live, struct ms_link, beat) {
        look_at(l);
        l->heard_ns =
            l->heard_ns + suspended_ns < now_ns ? l->heard_ns + suspended_ns : now_ns;
    }
}

/* Those that are silent for too long become suspect; when to look again. */
static int64_t look(struct ms_heartbeat *p, int64_t now_ns)
{
    while (!ms_list_is_empty(&p->live)) {
        struct ms_link *l = ms_list_first(&p->live, struct ms_link, beat);

        look_at(l);
        if (l->heard_ns + MS_SUSPECT_NS > now_ns)
            return l->heard_ns + MS_SUSPECT_NS;
        ms_list_remove(&l->beat);
        ms_list_add_tail(&p->silent, &l->beat);
        ms_link_set_suspect(l, true);
    }
    return MS_NEVER;
}

/* Those whose last word is older than an eighth of a period: so no gap is longer than one
 * and an eighth, which is less than MS_SUSPECT_NS, and all of them keep one rhythm. */
_Static_assert(MS_LINK_BEAT_NS * 9 / 8 < MS_SUSPECT_NS, "a beat comes in time");

static void beat(struct ms_list *list, int64_t now_ns)
{
    ms_list_each (l, list, struct ms_link, beat)
        if (now_ns - ms_conn_sent_ns(l->conn) >= MS_LINK_BEAT_NS / 8)
            ms_link_send_beat(l);
}

static void on_time(void *arg)
{
    struct ms_heartbeat *p = ms_heartbeat_ref(arg);
    int64_t now_ns = ms_now_ns(), next_ns;

    if (now_ns - p->wake_ns > MS_SUSPENDED_NS)
        forgive(p, now_ns - p->wake_ns, now_ns);
    next_ns = look(p, now_ns);
    if (now_ns >= p->beat_ns) {
        beat(&p->live, now_ns);
        beat(&p->silent, now_ns);
        p->beat_ns = next_beat_ns(now_ns);
    }
    if (ms_list_is_empty(&p->live) && ms_list_is_empty(&p->silent))
        p->is_set = false;
    else
        wake_at(p, p->beat_ns < next_ns ? p->beat_ns : next_ns, now_ns);
    ms_heartbeat_unref(p);
}

/* ---- beats ------------------------------------------------------------------------ */

void ms_heartbeat_add(struct ms_heartbeat *p, struct ms_link *l)
{
    int64_t now_ns = ms_now_ns();

    l->heard_ns = now_ns;
    ms_list_add_tail(&p->live, &l->beat);
    if (p->is_set)
        return;
    p->beat_ns = next_beat_ns(now_ns);
    wake_at(p, p->beat_ns, now_ns);
}

void ms_heartbeat_remove(struct ms_heartbeat *p, struct ms_link *l)
{
    ms_list_remove(&l->beat);
    if (ms_list_is_empty(&p->live) && ms_list_is_empty(&p->silent)) {
        ms_timer_cancel(&p->timer);
        p->is_set = false;
    }
}

void ms_heartbeat_heard(struct ms_heartbeat *p, struct ms_link *l)
{
    l->heard_ns = ms_conn_heard_ns(l->conn);
    ms_list_remove(&l->beat);
    ms_list_add_tail(&p->live, &l->beat);
    if (l->is_suspect)
        ms_link_set_suspect(l, false);
}

/* ---- life ------------------------------------------------------------------------- */

struct ms_heartbeat *ms_heartbeat_create(struct ms_loop *loop)
{
    struct ms_heartbeat *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->refs = 1;
    ms_list_init(&p->live);
    ms_list_init(&p->silent);
    if (ms_timer_init(&p->timer, loop, on_time, p) < 0) {
        free(p);
        return NULL;
    }
    return p;
}

struct ms_heartbeat *ms_heartbeat_ref(struct ms_heartbeat *p)
{
    p->refs++;
    return p;
}

void ms_heartbeat_unref(struct ms_heartbeat *p)
{
    if (!p || --p->refs)
        return;
    ms_timer_finish(&p->timer);
    free(p);
}
