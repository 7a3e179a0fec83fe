/* recovery.c - the names of a daemon's nodes, and which are expected back */
#include "head/state/recovery.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define FILE_NAME "nodes"
#define NOTE_NS   (100 * MS_NS_PER_MS) /* changes are written together */

enum { FILE_MAX = MS_NODES_MAX * (MS_NAME_MAX + 1) + 1 };

struct expected {
    struct ms_list link; /* head->recovery.expected */
    char name[MS_NAME_MAX + 1];
};

void ms_recovery_expect(struct ms_head *h, const char *name)
{
    struct expected *e;

    if (ms_name_check(name, "node", NULL) < 0)
        return;
    ms_list_each (there, &h->recovery.expected, struct expected, link)
        if (strcmp(there->name, name) == 0)
            return;
    e = calloc(1, sizeof *e);
    if (!e)
        return;
    snprintf(e->name, sizeof e->name, "%s", name);
    ms_list_add_tail(&h->recovery.expected, &e->link);
}

static void read_names(struct ms_head *h)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(AT_FDCWD, h->session.dir);
    MS_CLEANUP(ms_cleanup_free) char *text = malloc(FILE_MAX);
    char *rest = text;

    if (!text || dir < 0 || ms_tree_read(dir, FILE_NAME, text, FILE_MAX) <= 0)
        return;
    for (char *name = strsep(&rest, "\n"); name; name = strsep(&rest, "\n"))
        ms_recovery_expect(h, name);
}

/* What cannot be written costs a restarted head its patience, nothing else. */
static void on_note(void *arg)
{
    struct ms_head *h = arg;
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(AT_FDCWD, h->session.dir);
    struct ms_buf text;

    ms_buf_init(&text);
    ms_list_each (n, &h->nodes, struct ms_node, link)
        ms_buf_printf(&text, "%s\n", n->name);
    if (dir >= 0) {
        ms_tree_remove(dir, FILE_NAME ".new");
        if (ms_tree_write(dir, FILE_NAME ".new", text.data, text.len) == 0)
            renameat(dir, FILE_NAME ".new", dir, FILE_NAME);
    }
    ms_buf_finish(&text);
}

int ms_recovery_init(struct ms_head *h)
{
    if (h->session.was_left)
        read_names(h);
    return ms_timer_init(&h->recovery.note_timer, h->loop, on_note, h);
}

static void forget(struct expected *e)
{
    ms_list_remove(&e->link);
    free(e);
}

void ms_recovery_finish(struct ms_head *h)
{
    ms_timer_finish(&h->recovery.note_timer);
    ms_list_each (e, &h->recovery.expected, struct expected, link)
        forget(e);
}

void ms_recovery_note(struct ms_head *h)
{
    if (h->is_daemon)
        ms_timer_set(&h->recovery.note_timer, NOTE_NS);
}

void ms_recovery_has_come(struct ms_head *h, const char *name)
{
    ms_list_each (e, &h->recovery.expected, struct expected, link)
        if (strcmp(e->name, name) == 0)
            forget(e);
}

int64_t ms_recovery_left_ns(const struct ms_head *h)
{
    int64_t left_ns = h->started_ns + MS_RECOVERY_NS - ms_now_ns();

    return ms_list_is_empty(&h->recovery.expected) || left_ns < 0 ? 0 : left_ns;
}
