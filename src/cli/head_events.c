/* head_events.c - the lines of `muster head` about nodes and drivers that come and go */
#include "cli/head_events.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int ms_head_events_init(struct ms_head_events *e)
{
    *e = (struct ms_head_events){.nodes = json_object()};
    pthread_mutex_init(&e->lock, NULL);
    return e->nodes ? 0 : -ENOMEM;
}

void ms_head_events_finish(struct ms_head_events *e)
{
    json_decref(e->nodes);
    pthread_mutex_destroy(&e->lock);
}

/* What peers say of themselves is printed without what moves a terminal's cursor. */
static void mask_control(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* A pipe that is writable takes PIPE_BUF bytes, a terminal that is not stopped a line. */
static bool write_line(char *line, size_t room)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    size_t len;

    mask_control(line);
    len = strnlen(line, room - 1);
    line[len++] = '\n';
    return poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) &&
           write(STDOUT_FILENO, line, len) >= 0;
}

static size_t print_time(char *out, size_t room)
{
    time_t now = time(NULL);
    struct tm tm;

    return localtime_r(&now, &tm)
               ? strftime(out, room, "muster head: %Y-%m-%d %H:%M:%S ", &tm)
               : 0;
}

__attribute__((format(printf, 2, 3))) static void
print_event(struct ms_head_events *e, const char *fmt, ...)
{
    char line[1024];
    size_t at = print_time(line, sizeof line);
    va_list ap;

    if (e->printed++ == 0 && e->held == 0)
        alarm(MS_HEAD_EVENTS_PERIOD_S);
    va_start(ap, fmt);
    /* begun above. NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    vsnprintf(line + at, sizeof line - at, fmt, ap);
    va_end(ap);
    if (e->printed > MS_HEAD_EVENTS_MAX || !write_line(line, sizeof line))
        e->held++;
}

void ms_head_events_end_period(struct ms_head_events *e)
{
    char line[256];
    size_t at = print_time(line, sizeof line);

    pthread_mutex_lock(&e->lock);
    e->printed = 0;
    if (e->held) {
        snprintf(line + at,
                 sizeof line - at,
                 "%u more have come or gone: `muster status` lists who is there",
                 e->held);
        if (write_line(line, sizeof line))
            e->held = 0;
        else
            alarm(MS_HEAD_EVENTS_PERIOD_S);
    }
    pthread_mutex_unlock(&e->lock);
}

/* ---- nodes ----------------------------------------------------------------------- */

static const char *address_of(const Muster__NodeStatus *n)
{
    return n->n_addresses ? n->addresses[0] : "an unknown address";
}

static void print_joined(struct ms_head_events *e, const Muster__NodeStatus *n)
{
    print_event(e,
                "node %s at %s has joined: %u GPU%s, %u CPU%s, %.1f GiB",
                n->name,
                address_of(n),
                n->gpus,
                n->gpus == 1 ? "" : "s",
                n->cpus,
                n->cpus == 1 ? "" : "s",
                (double)n->memory / (double)(1 << 30));
}

void ms_head_events_on_node(void *arg, const Muster__NodeStatus *n)
{
    struct ms_head_events *e = arg;
    const json_t *known;

    pthread_mutex_lock(&e->lock);
    known = json_object_get(e->nodes, n->name);
    if (!n->alive)
        print_event(e, "node %s at %s has gone: %s", n->name, address_of(n), n->detail);
    else if (!known)
        print_joined(e, n);
    else if (json_is_true(known) != n->suspect)
        print_event(e,
                    "node %s at %s %s",
                    n->name,
                    address_of(n),
                    n->suspect ? "is silent" : "is heard again");
    if (n->alive)
        json_object_set_new(e->nodes, n->name, json_boolean(n->suspect));
    else
        json_object_del(e->nodes, n->name);
    pthread_mutex_unlock(&e->lock);
}

/* ---- drivers --------------------------------------------------------------------- */

void ms_head_events_on_driver(void *arg,
                              const Muster__DriverStatus *d,
                              const char *peer,
                              const char *gone)
{
    struct ms_head_events *e = arg;

    pthread_mutex_lock(&e->lock);
    print_event(e,
                "driver %d on %.64s%s%s%s (%.200s) has %s%s",
                d->pid,
                d->host,
                *peer ? " [" : "",
                peer,
                *peer ? "]" : "",
                d->script,
                gone ? "gone: " : "joined",
                gone ? gone : "");
    pthread_mutex_unlock(&e->lock);
}
