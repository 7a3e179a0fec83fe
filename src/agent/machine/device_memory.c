/* device_memory.c - how much memory is in use on the devices of a node */
#include "agent/machine/device_memory.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

extern char **environ;

enum { TEXT_MAX = 64 << 10, READ_SIZE = 4096 };

static bool is_of(const Muster__Device *d, const char *vendor)
{
    return strcmp(d->vendor, vendor) == 0;
}

static void set(struct ms_device_memory *m, size_t i, uint64_t used, int64_t now_ns)
{
    m->of[i] = (struct ms_device_memory_entry){.used = used, .read_ns = now_ns};
}

/* ---- amd ------------------------------------------------------------------------- */

static void look_amd(struct ms_device_memory *m, size_t i)
{
    const Muster__Device *d = m->shape->devices[i];
    char path[PATH_MAX], text[32];

    snprintf(
        path, sizeof path, "/sys/bus/pci/devices/%.64s/mem_info_vram_used", d->pci);
    if (d->pci[0] && ms_file_read(path, text, sizeof text) > 0)
        set(m, i, strtoull(text, NULL, 10), ms_now_ns());
}

/* ---- nvidia ---------------------------------------------------------------------- */

/* nvidia-smi writes the domain with eight digits, the kernel with four. */
static bool is_same_pci(const char *a, const char *b)
{
    while (*a == '0')
        a++;
    while (*b == '0')
        b++;
    return *a && strcasecmp(a, b) == 0;
}

/* By its place on the bus; one that is only described by its number or name. */
static bool is_same(const Muster__Device *d, char *const cells[3])
{
    if (d->pci[0])
        return is_same_pci(d->pci, cells[2]);
    return strcmp(d->id, cells[0]) == 0 || strcmp(d->id, cells[1]) == 0;
}

static void parse_line(struct ms_device_memory *m, char *line, int64_t now_ns)
{
    char *cells[4], *end;
    uint64_t mib;

    for (size_t i = 0; i < MS_COUNT(cells); i++) {
        cells[i] = strsep(&line, ",");
        if (!cells[i])
            return;
        cells[i] += strspn(cells[i], " ");
    }
    mib = strtoull(cells[3], &end, 10);
    if (end == cells[3])
        return; /* [N/A] */
    for (size_t i = 0; i < m->shape->n_devices; i++)
        if (is_of(m->shape->devices[i], "nvidia") &&
            is_same(m->shape->devices[i], cells))
            set(m, i, mib << 20, now_ns);
}

void ms_device_memory_parse(struct ms_device_memory *m,
                            const char *text,
                            int64_t now_ns)
{
    MS_CLEANUP(ms_cleanup_free) char *copy = strdup(text);
    char *rest = copy, *line;

    while (copy && (line = strsep(&rest, "\n")))
        parse_line(m, line, now_ns);
}

static void forget_program(struct ms_device_memory *m)
{
    ms_watch_finish(&m->out);
    ms_fd_close(&m->out_fd);
    ms_fd_close(&m->program.pidfd); /* the agent reaps all of its children */
    ms_buf_finish(&m->text);
}

/* What is too much is no answer. */
static void on_out(void *arg, unsigned events)
{
    struct ms_device_memory *m = arg;
    const char *text;
    ssize_t n = -1;

    (void)events;
    if (m->text.len < TEXT_MAX && ms_buf_reserve(&m->text, READ_SIZE) == 0)
        n = read(m->out_fd, m->text.data + m->text.len, READ_SIZE);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        m->text.len += (size_t)n;
        return;
    }
    text = n == 0 ? ms_buf_str(&m->text) : NULL;
    if (text)
        ms_device_memory_parse(m, text, ms_now_ns());
    forget_program(m);
    m->on_read(m->arg);
}

static bool find_program(char out[PATH_MAX])
{
    const char *at = getenv("PATH");

    for (; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(out, PATH_MAX, "%.*s/nvidia-smi", (int)strcspn(at, ":"), at);
        if (out[0] == '/' && access(out, X_OK) == 0)
            return true;
    }
    return false;
}

static bool run_program(struct ms_device_memory *m)
{
    static const char *const argv[] = {"nvidia-smi",
                                       "--query-gpu=index,uuid,pci.bus_id,memory.used",
                                       "--format=csv,noheader,nounits",
                                       NULL};
    char path[PATH_MAX];
    int fds[2];
    struct ms_spawn_fd out;
    struct ms_spawn spawn = {.path = path,
                             .argv = argv,
                             .env = (const char *const *)environ,
                             .fds = &out,
                             .fd_count = 1,
                             .new_session = true};
    bool runs;

    if (!find_program(path) || pipe2(fds, O_CLOEXEC) < 0)
        return false;
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    out = (struct ms_spawn_fd){.from = fds[1], .to = STDOUT_FILENO};
    runs = ms_spawn(&spawn, &m->program, NULL) == 0;
    close(fds[1]);
    m->out_fd = fds[0];
    m->begun_ns = ms_now_ns();
    if (runs && ms_watch_init(&m->out, m->loop, m->out_fd, MS_READ, on_out, m) == 0)
        return true;
    forget_program(m);
    return false;
}

/* One that still runs is not waited for again. */
static bool ask_nvidia(struct ms_device_memory *m)
{
    if (m->program.pidfd < 0)
        return run_program(m);
    if (ms_now_ns() - m->begun_ns > MS_DEVICE_MEMORY_OLD_NS)
        ms_process_signal(m->program.pidfd, SIGKILL);
    return false;
}

/* ---- all ------------------------------------------------------------------------- */

void ms_device_memory_init(struct ms_device_memory *m,
                           struct ms_loop *loop,
                           void (*on_read)(void *arg),
                           void *arg)
{
    *m = (struct ms_device_memory){.loop = loop,
                                   .program = {.pidfd = -1},
                                   .out_fd = -1,
                                   .on_read = on_read,
                                   .arg = arg};
}

void ms_device_memory_finish(struct ms_device_memory *m)
{
    if (m->program.pidfd >= 0)
        ms_process_signal(m->program.pidfd, SIGKILL);
    forget_program(m);
    free(m->of);
    m->of = NULL;
    m->room = 0;
}

bool ms_device_memory_ask(struct ms_device_memory *m, const Muster__NodeShape *shape)
{
    bool has_nvidia = false;

    if (!shape ||
        ms_array_reserve(&m->of, &m->room, shape->n_devices, sizeof *m->of) < 0)
        return false;
    m->shape = shape;
    for (size_t i = 0; i < shape->n_devices; i++) {
        has_nvidia |= is_of(shape->devices[i], "nvidia");
        if (is_of(shape->devices[i], "amd"))
            look_amd(m, i);
    }
    return has_nvidia && ask_nvidia(m);
}

bool ms_device_memory_sum(const struct ms_device_memory *m,
                          const uint32_t *devices,
                          size_t count,
                          uint64_t *used)
{
    int64_t now_ns = ms_now_ns();

    *used = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ms_device_memory_entry *e =
            devices[i] < m->room ? &m->of[devices[i]] : NULL;

        if (!e || !e->read_ns || now_ns - e->read_ns > MS_DEVICE_MEMORY_OLD_NS)
            return false;
        *used += e->used;
    }
    return count > 0;
}
