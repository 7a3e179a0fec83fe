/* orphan.c - workers whose agent has died: watched, and killed if they stay */
#include "head/nodes/orphan.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "head/head_impl.h"
#include "io/proc.h"
#include "io/spawn.h"
#include "io/supervised.h"

struct orphan {
    struct ms_list link;
    struct ms_orphans *owner;
    pid_t pid;
    int pidfd;
    struct ms_watch watch;
};

static void orphan_destroy(struct orphan *w)
{
    ms_list_remove(&w->link);
    ms_watch_finish(&w->watch);
    ms_fd_close(&w->pidfd);
    free(w);
}

static void on_end(void *arg, unsigned events)
{
    struct orphan *w = arg;
    struct ms_orphans *o = w->owner;

    (void)events;
    orphan_destroy(w);
    if (ms_list_is_empty(&o->list))
        ms_head_stop_step(o->head);
}

/* True if that process was there at known_ns. */
static bool is_that_old(pid_t pid, int64_t known_ns)
{
    struct timespec boot;
    int64_t began = (int64_t)ms_proc_start(pid), known_boot_ns;

    clock_gettime(CLOCK_BOOTTIME, &boot);
    known_boot_ns = boot.tv_sec * MS_NS_PER_S + boot.tv_nsec - (ms_now_ns() - known_ns);
    return began > 0 && began * (MS_NS_PER_S / sysconf(_SC_CLK_TCK)) <= known_boot_ns;
}

void ms_orphans_add(struct ms_orphans *o, pid_t pid, int64_t known_ns)
{
    struct orphan *w;
    int pidfd = pid > 0 ? ms_process_open(pid) : -1;

    if (pidfd < 0)
        return;
    w = is_that_old(pid, known_ns) ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        close(pidfd);
        return;
    }
    w->owner = o;
    w->pid = pid;
    w->pidfd = pidfd;
    ms_list_init(&w->link);
    if (ms_watch_init(&w->watch, o->head->loop, pidfd, MS_READ, on_end, w) < 0) {
        orphan_destroy(w);
        return;
    }
    ms_list_add_tail(&o->list, &w->link);
}

/* While the process is there nobody else can have its number, nor that of its group. */
static void on_patience(void *arg)
{
    struct ms_orphans *o = arg;

    ms_list_each (w, &o->list, struct orphan, link)
        ms_proc_kill(w->pid);
    ms_supervised_sweep();
}

void ms_orphans_kill_after(struct ms_orphans *o, int64_t delay_ns)
{
    ms_timer_set(&o->patience, delay_ns);
}

int ms_orphans_init(struct ms_orphans *o, struct ms_head *h)
{
    o->head = h;
    ms_list_init(&o->list);
    return ms_timer_init(&o->patience, h->loop, on_patience, o);
}

void ms_orphans_finish(struct ms_orphans *o)
{
    if (!o->head)
        return;
    ms_list_each (w, &o->list, struct orphan, link)
        orphan_destroy(w);
    ms_timer_finish(&o->patience);
}
