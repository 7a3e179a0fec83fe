/* proc_tree.c - a process and its descendants, as /proc shows them */
#include "io/proc_tree.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "io/tree.h"

#include <stdlib.h>
#include <string.h>

enum { STAT_MAX = 1024, COMMAND_MAX = 120, STACK_MAX = 4096, NAME_MAX_LEN = 64 };

struct process {
    pid_t pid, parent;
};

/* ---- one file ---------------------------------------------------------------------- */

/* The state of a thread, and the parent of its process. False: it has ended. */
static bool read_stat(const char *folder, char *state, pid_t *parent)
{
    char path[96], text[STAT_MAX];
    const char *behind_name;

    snprintf(path, sizeof path, "%s/stat", folder);
    if (ms_file_read(path, text, sizeof text) <= 0)
        return false;
    behind_name = strrchr(text, ')'); /* the name may have anything in it */
    return behind_name && sscanf(behind_name + 1, " %c %d", state, parent) == 2;
}

static const char *state_name(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "sleeping";
    case 'D':
        return "waiting for a device";
    case 'T':
        return "stopped by a signal";
    case 't':
        return "stopped by a debugger";
    case 'Z':
        return "ended, and nobody has reaped it";
    case 'I':
        return "idle";
    default:
        return "ending";
    }
}

static void add_command(struct ms_buf *out, pid_t pid)
{
    char path[64], text[COMMAND_MAX];
    int len;

    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    len = ms_file_read(path, text, sizeof text);
    while (len > 0 && !text[len - 1])
        len--;
    for (int i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ')
            text[i] = ' ';
    ms_buf_printf(out, "process %d%s%.*s\n", (int)pid, len > 0 ? ": " : "", len, text);
}

/* "[<0>] futex_wait+0x1/0x2" becomes "futex_wait"; what every call into the kernel passes is
 * left out. False: there is no such line any more. */
static bool take_frame(char **at, char name[NAME_MAX_LEN])
{
    char *line = *at, *end = strchr(line, '\n'), *text = strstr(line, "] ");

    if (!end)
        return false;
    *at = end + 1;
    *end = 0;
    text = text ? text + 2 : line;
    snprintf(name, NAME_MAX_LEN, "%.*s", (int)strcspn(text, "+"), text);
    if (strncmp(name, "do_syscall", 10) == 0 || strncmp(name, "entry_SYSCALL", 13) == 0)
        name[0] = 0;
    return true;
}

static bool add_stack(struct ms_buf *out, const char *folder)
{
    char path[96], text[STACK_MAX], name[NAME_MAX_LEN], *at = text;
    int count = 0;

    snprintf(path, sizeof path, "%s/stack", folder);
    if (ms_file_read(path, text, sizeof text) <= 0)
        return false;
    while (count < MS_PROC_TREE_FRAMES_MAX && take_frame(&at, name))
        if (name[0])
            ms_buf_printf(out, "%s%s", count++ ? " < " : " in ", name);
    return count > 0;
}

static void add_wait(struct ms_buf *out, const char *folder)
{
    char path[96], text[NAME_MAX_LEN];

    snprintf(path, sizeof path, "%s/wchan", folder);
    if (ms_file_read(path, text, sizeof text) > 0 && strcmp(text, "0") != 0)
        ms_buf_printf(out, " in %s", text);
}

/* ---- threads ----------------------------------------------------------------------- */

static void add_thread(struct ms_buf *out, const char *folder, const char *tid)
{
    char path[96], name[32] = "", state = 0;
    pid_t parent;

    if (!read_stat(folder, &state, &parent))
        return;
    snprintf(path, sizeof path, "%s/comm", folder);
    ms_file_read(path, name, sizeof name);
    name[strcspn(name, "\n")] = 0;
    ms_buf_printf(out, "  thread %.12s (%s): %s", tid, name, state_name(state));
    if (state != 'R' && !add_stack(out, folder))
        add_wait(out, folder);
    ms_buf_printf(out, "\n");
}

static void add_threads(struct ms_buf *out, pid_t pid)
{
    char tasks_path[48], folder[80];
    size_t count = 0;
    struct dirent *e;

    snprintf(tasks_path, sizeof tasks_path, "/proc/%d/task", (int)pid);
    MS_CLEANUP(ms_cleanup_dir) DIR *tasks = opendir(tasks_path);

    while (tasks && (e = readdir(tasks))) {
        if (e->d_name[0] == '.' || ++count > MS_PROC_TREE_THREADS_MAX)
            continue;
        snprintf(folder, sizeof folder, "%s/%.12s", tasks_path, e->d_name);
        add_thread(out, folder, e->d_name);
    }
    if (count > MS_PROC_TREE_THREADS_MAX)
        ms_buf_printf(
            out, "  and %zu more threads\n", count - MS_PROC_TREE_THREADS_MAX);
}

/* ---- processes --------------------------------------------------------------------- */

static int list_all(struct ms_buf *out)
{
    MS_CLEANUP(ms_cleanup_dir) DIR *proc = opendir("/proc");
    struct dirent *e;

    while (proc && (e = readdir(proc))) {
        struct process one = {.pid = (pid_t)atoi(e->d_name)};
        char folder[32], state;

        if (one.pid <= 0)
            continue;
        snprintf(folder, sizeof folder, "/proc/%d", (int)one.pid);
        if (read_stat(folder, &state, &one.parent) &&
            ms_buf_append(out, &one, sizeof one) < 0)
            return -1;
    }
    return proc ? 0 : -1;
}

/* Its descendants behind it, those of one generation together. How many in all; of more than
 * there is room for only the number is told. */
static size_t find_tree(const struct ms_buf *all, pid_t *tree)
{
    const struct process *at = (const struct process *)(const void *)all->data;
    size_t count = 1;

    for (size_t i = 0; i < count && i < MS_PROC_TREE_PROCESSES_MAX; i++)
        for (size_t k = 0; k < all->len / sizeof *at; k++) {
            if (at[k].parent != tree[i])
                continue;
            if (count < MS_PROC_TREE_PROCESSES_MAX)
                tree[count] = at[k].pid;
            count++;
        }
    return count;
}

char *ms_proc_tree(pid_t root)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf all = {0}, out = {0};
    pid_t tree[MS_PROC_TREE_PROCESSES_MAX] = {root}, parent;
    char folder[32], state;
    size_t count;

    snprintf(folder, sizeof folder, "/proc/%d", (int)root);
    if (!read_stat(folder, &state, &parent) || list_all(&all) < 0)
        return NULL;
    count = find_tree(&all, tree);
    for (size_t i = 0; i < count && i < MS_PROC_TREE_PROCESSES_MAX; i++) {
        add_command(&out, tree[i]);
        add_threads(&out, tree[i]);
    }
    if (count > MS_PROC_TREE_PROCESSES_MAX)
        ms_buf_printf(
            &out, "and %zu more processes\n", count - MS_PROC_TREE_PROCESSES_MAX);
    return ms_buf_str(&out) ? (char *)MS_TAKE(out.data) : NULL;
}
