/* talk.c - what a zygote is sent, what it says, and what its end means to those who wait */
#include "agent/exec.h"
#include "agent/zygotes/process.h"
#include "agent/zygotes/zygote_impl.h"
#include "base/limits.h"
#include "io/sock.h"
#include "io/spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAIL_MAX = 2048 };

static struct ms_zygote_item *pop(struct ms_list *list)
{
    struct ms_zygote_item *item = ms_list_first(list, struct ms_zygote_item, link);

    if (ms_list_is_empty(list))
        return NULL;
    ms_list_remove(&item->link);
    return item;
}

static struct ms_zygote *derived_of(struct ms_zygote_item *item)
{
    return MS_CONTAINER(item, struct ms_zygote, derive);
}

/* ---- what becomes of those who wait ---------------------------------------------- */

void ms_zygote_fail_item(struct ms_zygote *z,
                         struct ms_zygote_item *item,
                         const char *why)
{
    ms_buf_finish(&item->data);
    if (item->is_derive)
        ms_zygote_fail(derived_of(item), why);
    else
        z->pool->ops->on_failed(z->pool->arg, item, why);
}

static void tell_waiters(struct ms_zygote *z, const char *why)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf tokens = z->waiters;

    ms_buf_init(&z->waiters);
    for (size_t at = 0; at < tokens.len; at += sizeof(uint64_t)) {
        uint64_t token;

        memcpy(&token, tokens.data + at, sizeof token);
        z->pool->ops->on_prepared(z->pool->arg, token, why);
    }
}

void ms_zygote_fail(struct ms_zygote *z, const char *why)
{
    struct ms_zygote_item *item;

    if (z->state == MS_ZYGOTE_DEAD)
        return;
    z->state = MS_ZYGOTE_DEAD;
    if (z->pid > 0)
        kill(z->pid, SIGKILL);
    z->pid = 0;
    ms_zygote_close_socket(z);
    ms_timer_cancel(&z->timer);
    ms_list_remove(&z->derive.link);
    while ((item = pop(&z->queue)))
        ms_zygote_fail_item(z, item, why);
    while ((item = pop(&z->sent)))
        ms_zygote_fail_item(z, item, why);
    tell_waiters(z, why);
}

/* The last lines that it has printed, as ":\n..." or nothing. */
static void add_last_lines(const struct ms_zygote *z, struct ms_buf *text)
{
    char tail[TAIL_MAX];
    struct stat st;
    off_t from = z->log_from;
    ssize_t n;
    char *start = tail;

    if (fstat(z->pool->log_fd, &st) < 0 || st.st_size <= from)
        return;
    if (st.st_size - from > TAIL_MAX)
        from = st.st_size - TAIL_MAX;
    n = pread(z->pool->log_fd, tail, sizeof tail, from);
    while (n > 0 && tail[n - 1] == '\n')
        n--;
    if (n <= 0)
        return;
    if (from != z->log_from) { /* cut: begin with a whole line */
        char *newline = memchr(tail, '\n', (size_t)n);

        start = newline ? newline + 1 : tail;
    }
    ms_buf_printf(text, "; its last lines:\n%.*s", (int)(tail + n - start), start);
}

static struct ms_zygote_item *find_sent(struct ms_zygote *z, uint64_t uid)
{
    ms_list_each (item, &z->sent, struct ms_zygote_item, link)
        if (item->uid == uid)
            return item;
    return NULL;
}

/* The item of a request that was sent, as it was before. NULL: its worker is gone, or out of
 * memory. */
static struct ms_zygote_item *restore(
    struct ms_zygote *z, const uint8_t *data, size_t len, const int *fds, size_t count)
{
    Muster__ZygoteRequest *m = muster__zygote_request__unpack(NULL, len, data);
    struct ms_zygote_item *item = m ? find_sent(z, ms_zygote_request_uid(m)) : NULL;

    muster__zygote_request__free_unpacked(m, NULL);
    if (!item || ms_buf_append(&item->data, data, len) < 0)
        return NULL;
    memcpy(item->fds, fds, count * sizeof *fds);
    item->fd_count = count;
    if (!item->is_derive)
        z->pool->ops->on_returned(z->pool->arg, item);
    return item;
}

/* What was sent to it, and neither it nor a spare has read. */
static void take_unread(struct ms_zygote *z, struct ms_list *unread)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *room = malloc(MS_SPAWN_MAX);

    while (room && z->unread >= 0) {
        int fds[MS_ZYGOTE_ITEM_FDS];
        size_t count = MS_ZYGOTE_ITEM_FDS;
        ssize_t n = ms_fds_recv(z->unread, room, MS_SPAWN_MAX, fds, &count);
        struct ms_zygote_item *item;

        if (n <= 0)
            return;
        item = restore(z, room, (size_t)n, fds, count);
        for (size_t i = 0; !item && i < count; i++)
            close(fds[i]);
        if (item) {
            ms_list_remove(&item->link);
            ms_list_add_tail(unread, &item->link);
        }
    }
}

/* What a ready one has not read is sent to another. */
static void lose(struct ms_zygote *z, const char *why)
{
    struct ms_list unsent;

    dprintf(STDERR_FILENO, "%s\n", why);
    ms_list_init(&unsent);
    if (z->state == MS_ZYGOTE_READY) {
        take_unread(z, &unsent);
        ms_list_splice(&unsent, &z->queue);
    }
    ms_zygote_fail(z, why);
    ms_zygotes_pass_on(z, &unsent, why);
}

void ms_zygote_ended(struct ms_zygote *z, int status)
{
    struct ms_process_end how = {.known = true,
                                 .signaled = WIFSIGNALED(status),
                                 .code = WIFSIGNALED(status) ? WTERMSIG(status)
                                                             : WEXITSTATUS(status)};
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    struct ms_error err = {0};
    char end[96];

    z->pid = 0;
    if (z->state == MS_ZYGOTE_UNFORKABLE)
        return;
    if (z->problem_fd >= 0 && ms_exec_result(z->problem_fd, &err) < 0 && err.code)
        ms_buf_printf(&text, "the zygote did not start: %s", err.text);
    else
        ms_buf_printf(&text,
                      "the zygote (%s) %s%s",
                      z->key->python[0],
                      ms_process_end_print(&how, end, sizeof end),
                      z->state == MS_ZYGOTE_STARTING ? " before it was ready" : "");
    add_last_lines(z, &text);
    lose(z, ms_buf_str(&text) ? ms_buf_str(&text) : "the zygote ended");
}

void ms_zygote_late(struct ms_zygote *z)
{
    char why[128];

    if (ms_list_is_empty(&z->sent))
        return;
    if (!z->is_late) {
        z->is_late = true;
        ms_timer_set(&z->timer, MS_ZYGOTE_ANSWER_NS);
        kill(z->pid,
             SIGCHLD); /* a spare that was told may be stopped: read it yourself */
        return;
    }
    snprintf(why,
             sizeof why,
             "the zygote (%s) was killed: it did not answer for %d s",
             z->key->python[0],
             (int)(2 * MS_ZYGOTE_ANSWER_NS / MS_NS_PER_S));
    lose(z, why);
}

/* It has said something, or the first of several was sent. */
static void expect_answer(struct ms_zygote *z)
{
    z->is_late = false;
    if (ms_list_is_empty(&z->sent))
        ms_timer_cancel(&z->timer);
    else
        ms_timer_set(&z->timer, MS_ZYGOTE_ANSWER_NS);
}

/* ---- to it ----------------------------------------------------------------------- */

static void give_back_unforkable(struct ms_zygote *z)
{
    struct ms_zygote_item *item;
    struct ms_error err = {0};

    while ((item = pop(&z->queue))) {
        ms_buf_finish(&item->data);
        if (!item->is_derive) {
            z->pool->ops->on_unforkable(
                z->pool->arg, item, z->problem ? z->problem : "");
            continue;
        }
        ms_fd_close(&item->fds[0]);
        if (ms_zygote_launch(derived_of(item), &err) < 0)
            ms_zygote_fail(derived_of(item), err.text);
    }
}

/* 0; -EAGAIN: later; -EMSGSIZE: never; or it is about to die. */
static int send_item(struct ms_zygote *z, struct ms_zygote_item *item)
{
    ssize_t n;

    if (item->data.len > MS_SPAWN_MAX)
        return -EMSGSIZE;
    n = ms_fds_send(z->fd, item->data.data, item->data.len, item->fds, item->fd_count);
    if (n == -ETOOMANYREFS || n == -ENOBUFS)
        return -EAGAIN; /* tried again when it has answered another */
    return n < 0 ? (int)n : 0;
}

static void sent(struct ms_zygote *z, struct ms_zygote_item *item)
{
    bool is_first = ms_list_is_empty(&z->sent);

    ms_buf_finish(&item->data);
    ms_list_remove(&item->link);
    ms_list_add_tail(&z->sent, &item->link);
    if (is_first)
        expect_answer(z);
    if (item->is_derive)
        ms_fd_close(&item->fds[0]);
    else
        z->pool->ops->on_sent(z->pool->arg, item);
}

static void refuse_big(struct ms_zygote *z, struct ms_zygote_item *item)
{
    char why[128];

    ms_list_remove(&item->link);
    snprintf(why,
             sizeof why,
             "its environment is too big for a fork: %zu bytes, at most %zu",
             item->data.len,
             MS_SPAWN_MAX);
    ms_zygote_fail_item(z, item, why);
}

/* A spare, else the zygote itself. By a signal, which lets it run on a processor that is free:
 * a message would put it on ours, where it waits until we have prepared all workers. */
static void wake(struct ms_zygote *z)
{
    pid_t pid = z->spare_count ? z->spares[--z->spare_count] : z->pid;

    if (pid > 0)
        kill(pid, SIGCHLD);
}

void ms_zygote_flush(struct ms_zygote *z)
{
    int rc = 0;

    if (z->state == MS_ZYGOTE_UNFORKABLE)
        give_back_unforkable(z);
    if (z->state != MS_ZYGOTE_READY)
        return;
    while (rc == 0 && !ms_list_is_empty(&z->queue)) {
        struct ms_zygote_item *item =
            ms_list_first(&z->queue, struct ms_zygote_item, link);

        rc = send_item(z, item);
        if (rc == 0) {
            sent(z, item);
            wake(z);
        } else if (rc == -EMSGSIZE) {
            refuse_big(z, item);
            rc = 0;
        }
    }
    ms_watch_set(&z->watch, MS_READ | (rc == -EAGAIN ? MS_WRITE : 0u));
}

/* ---- from it --------------------------------------------------------------------- */

/* Requests that came since it read a file want what is there now. Another zygote is tried
 * once: there are modules that write to their own files. */
static void check_loaded(struct ms_zygote *z)
{
    static const char why[] = "the files of its modules change while it starts";
    struct ms_list unsent;

    if (z->is_again || !ms_zygote_files_changed(&z->files))
        return;
    z->is_stale = true;
    ms_list_init(&unsent);
    ms_list_splice(&unsent, &z->queue);
    ms_zygotes_pass_on(z, &unsent, why);
}

static void on_ready_event(struct ms_zygote *z, const Muster__ZygoteReady *ready)
{
    if (z->state != MS_ZYGOTE_STARTING)
        return;
    ms_timer_cancel(&z->timer);
    ms_fd_close(&z->problem_fd);
    z->pid = ready->pid; /* of a derived one: before its base tells */
    if (*ready->problem) {
        dprintf(STDERR_FILENO, "zygote %d: %s\n", (int)z->pid, ready->problem);
        z->problem = strdup(ready->problem);
    }
    if (ready->forkable) {
        z->state = MS_ZYGOTE_READY;
    } else {
        z->state = MS_ZYGOTE_UNFORKABLE;
        kill(z->pid, SIGKILL);
        ms_zygote_close_socket(z);
    }
    tell_waiters(z, NULL);
    check_loaded(z);
    ms_zygote_flush(z);
}

static void on_spawned(struct ms_zygote *z, const Muster__Spawned *spawned)
{
    char why[128];

    ms_list_each (item, &z->sent, struct ms_zygote_item, link) {
        if (item->uid != spawned->uid)
            continue;
        ms_list_remove(&item->link);
        expect_answer(z);
        if (spawned->pid <= 0) {
            if (spawned->error == ECHILD)
                snprintf(why, sizeof why, "its process was killed before it began");
            else
                snprintf(why,
                         sizeof why,
                         "the zygote could not fork: %s",
                         strerrordesc_np(spawned->error));
            ms_zygote_fail_item(z, item, why);
        } else if (item->is_derive) {
            derived_of(item)->pid = spawned->pid;
        } else {
            z->pool->ops->on_spawned(z->pool->arg, item, spawned->pid, z->pid);
        }
        return;
    }
}

/* Without memory for it, workers of its workers come from another one. */
static void on_changed(struct ms_zygote *z, const char *entry)
{
    if (!ms_zygote_key_counts(entry, NULL))
        return;
    if (!z->after)
        z->after = ms_zygote_key_copy(z->key);
    if (z->after && ms_zygote_key_change_env(z->after, entry) < 0) {
        ms_zygote_key_destroy(z->after);
        z->after = NULL;
    }
}

static void on_spare(struct ms_zygote *z, pid_t pid)
{
    if (z->spare_count < MS_SPARES_MAX)
        z->spares[z->spare_count++] = pid;
}

/* A spare that was told of a request may have died before it read it: the zygote looks. */
static void on_reaped(struct ms_zygote *z, const Muster__Reaped *reaped)
{
    for (unsigned i = 0; i < z->spare_count; i++)
        if (z->spares[i] == reaped->pid)
            z->spares[i--] = z->spares[--z->spare_count];
    if (!ms_list_is_empty(&z->sent))
        kill(z->pid, SIGCHLD);
    z->pool->ops->on_reaped(z->pool->arg, reaped->pid, reaped->status);
}

static void on_event(struct ms_zygote *z, const Muster__ZygoteEvent *event)
{
    switch (event->body_case) {
    case MUSTER__ZYGOTE_EVENT__BODY_LOADED:
        if (ms_zygote_files_add(&z->files, event->loaded) < 0)
            z->is_stale = true; /* as if the file had changed */
        break;
    case MUSTER__ZYGOTE_EVENT__BODY_CHANGED:
        on_changed(z, event->changed->entry);
        break;
    case MUSTER__ZYGOTE_EVENT__BODY_READY:
        on_ready_event(z, event->ready);
        break;
    case MUSTER__ZYGOTE_EVENT__BODY_SPAWNED:
        on_spawned(z, event->spawned);
        break;
    case MUSTER__ZYGOTE_EVENT__BODY_REAPED:
        on_reaped(z, event->reaped);
        break;
    case MUSTER__ZYGOTE_EVENT__BODY_SPARE:
        on_spare(z, event->spare->pid);
        break;
    default:
        break;
    }
}

void ms_zygote_read(struct ms_zygote *z)
{
    while (z->fd >= 0) {
        size_t no_fds = 0;
        ssize_t n =
            ms_fds_recv(z->fd, z->pool->room, MS_ZYGOTE_EVENT_MAX, NULL, &no_fds);
        Muster__ZygoteEvent *event;

        if (n == -EAGAIN)
            break;
        if (n <= 0) {
            /* it ends, or will not be understood any more; the reaper tells the rest */
            ms_watch_set(&z->watch, 0);
            if (z->pid > 0)
                kill(z->pid, SIGKILL);
            return;
        }
        event = muster__zygote_event__unpack(NULL, (size_t)n, z->pool->room);
        if (!event)
            continue;
        on_event(z, event);
        muster__zygote_event__free_unpacked(event, NULL);
    }
    if (z->state == MS_ZYGOTE_READY && !ms_list_is_empty(&z->queue))
        ms_zygote_flush(z);
    ms_zygote_end_if_over(z);
}
