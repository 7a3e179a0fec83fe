/* typed.c - lines of stdin: edited on a terminal, or piped */
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/debug/debug.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4096, PROMPT_MAX = 256 };

/* The part of readline's interface that libedit has too. */
struct editor {
    void (*install)(const char *prompt, void (*on_line)(char *line));
    void (*read_char)(void);
    void (*remove)(void);
    void (*add_history)(const char *line);
};

struct ms_typed {
    const struct ms_typed_ops *ops;
    void *arg;
    struct ms_loop *loop;
    struct ms_watch watch;
    struct editor editor; /* install is NULL: there is none */
    struct ms_buf bytes;  /* piped, not yet given out */
    char prompt[PROMPT_MAX];
    bool is_file; /* which cannot be watched: it never blocks */
    bool is_asked, is_installed, is_at_end;
};

static struct ms_typed *the_typed; /* the editor's callback has no argument */

static bool load_from(struct editor *e, const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    int *catch_signals;

    if (!handle)
        return false;
    *(void **)&e->install = dlsym(handle, "rl_callback_handler_install");
    *(void **)&e->read_char = dlsym(handle, "rl_callback_read_char");
    *(void **)&e->remove = dlsym(handle, "rl_callback_handler_remove");
    *(void **)&e->add_history = dlsym(handle, "add_history");
    catch_signals = dlsym(handle, "rl_catch_signals");
    if (!e->install || !e->read_char || !e->remove || !e->add_history)
        return false;
    if (catch_signals)
        *catch_signals = 0; /* they are ours */
    return true;
}

static void load(struct editor *e)
{
    static const char *const libraries[] = {
        "libreadline.so.8", "libedit.so.2", "libedit.so.0"};

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return;
    for (size_t i = 0; i < MS_COUNT(libraries); i++)
        if (load_from(e, libraries[i]))
            return;
    *e = (struct editor){0};
}

static void watch(struct ms_typed *t, unsigned events)
{
    if (!t->is_file)
        ms_watch_set(&t->watch, events);
}

/* ---- what comes ------------------------------------------------------------------ */

static void uninstall(struct ms_typed *t)
{
    if (t->is_installed)
        t->editor.remove();
    t->is_installed = false;
}

static void give(struct ms_typed *t, const char *line)
{
    t->is_asked = false;
    watch(t, 0);
    t->ops->on_line(t->arg, line);
}

static void on_edited(char *line)
{
    MS_CLEANUP(ms_cleanup_free) char *typed = line;
    struct ms_typed *t = the_typed;

    uninstall(t);
    if (!line)
        putchar('\n');
    else if (*line)
        t->editor.add_history(line);
    give(t, typed);
}

/* A line of what was piped, if there is a whole one or nothing comes behind it. */
static bool give_piped(struct ms_typed *t)
{
    uint8_t *newline = t->bytes.len ? memchr(t->bytes.data, '\n', t->bytes.len) : NULL;
    size_t len = newline ? (size_t)(newline - t->bytes.data) : t->bytes.len;
    MS_CLEANUP(ms_cleanup_free) char *line = NULL;

    if (!newline && !t->is_at_end)
        return false;
    if (!newline && !len)
        putchar('\n');
    else
        line = strndup((char *)t->bytes.data, len);
    ms_buf_consume(&t->bytes, len + (newline != NULL));
    give(t, line);
    return true;
}

static void read_more(struct ms_typed *t)
{
    char block[BLOCK];
    ssize_t n = read(STDIN_FILENO, block, sizeof block);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0 || ms_buf_append(&t->bytes, block, (size_t)n) < 0)
        t->is_at_end = true;
}

static void on_readable(void *arg, unsigned events)
{
    struct ms_typed *t = arg;

    (void)events;
    if (t->is_installed) {
        t->editor.read_char();
        return;
    }
    read_more(t);
    give_piped(t);
}

/* What has come before it was asked for. */
static void on_asked(void *arg)
{
    struct ms_typed *t = arg;

    while (t->is_asked && !t->is_installed && !give_piped(t) && t->is_file)
        read_more(t);
}

/* ---- interface --------------------------------------------------------------------- */

struct ms_typed *
ms_typed_create(struct ms_loop *loop, const struct ms_typed_ops *ops, void *arg)
{
    struct ms_typed *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    *t = (struct ms_typed){.ops = ops, .arg = arg, .loop = loop};
    t->is_file =
        ms_watch_init(&t->watch, loop, STDIN_FILENO, MS_READ, on_readable, t) < 0;
    watch(t, 0);
    load(&t->editor);
    the_typed = t;
    return t;
}

void ms_typed_destroy(struct ms_typed *t)
{
    if (!t)
        return;
    uninstall(t);
    ms_watch_finish(&t->watch);
    ms_buf_finish(&t->bytes);
    free(t);
    the_typed = NULL;
}

static void show_prompt(struct ms_typed *t)
{
    if (t->editor.install) {
        t->is_installed = true;
        t->editor.install(t->prompt, on_edited);
    } else {
        fputs(t->prompt, stdout);
        fflush(stdout);
    }
}

void ms_typed_ask(struct ms_typed *t, const char *prompt)
{
    snprintf(t->prompt, sizeof t->prompt, "%s", prompt);
    t->is_asked = true;
    show_prompt(t);
    watch(t, MS_READ);
    ms_loop_post(t->loop, on_asked, t);
}

void ms_typed_restart(struct ms_typed *t)
{
    if (!t->is_asked)
        return;
    uninstall(t);
    puts("^C");
    show_prompt(t);
}

void ms_typed_stop(struct ms_typed *t)
{
    if (!t->is_asked)
        return;
    t->is_asked = false;
    uninstall(t);
    watch(t, 0);
    putchar('\n');
}
