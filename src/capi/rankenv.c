#include "base/buf.h"
#include "capi/capi.h"

#include <stdarg.h>
#include <string.h>

struct strings {
    char **at;
    size_t count, room;
    bool failed;
};

static void add(struct strings *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct strings *s, const char *fmt, ...)
{
    va_list args;

    if (!s->failed && s->count + 2 > s->room) {
        size_t room = s->room ? 2 * s->room : 32;
        char **more = realloc(s->at, room * sizeof *more);

        s->failed = !more;
        if (more) {
            s->at = more;
            s->room = room;
        }
    }
    if (s->failed)
        return;
    va_start(args, fmt);
    s->failed = vasprintf(&s->at[s->count], fmt, args) < 0;
    va_end(args);
    if (!s->failed)
        s->count++;
    s->at[s->count] = NULL;
}

static char **finish(struct strings *s)
{
    if (!s->failed)
        return s->at;
    ms_capi_strings_free(s->at);
    return NULL;
}

void ms_capi_strings_free(char **strings)
{
    for (size_t i = 0; strings && strings[i]; i++)
        free(strings[i]);
    free(strings);
}

char **ms_capi_session_env(void)
{
    struct strings s = {0};

    for (char **at = environ; at && *at; at++)
        add(&s, "%s", *at);
    if (!getenv("OMP_NUM_THREADS"))
        add(&s, "OMP_NUM_THREADS=1");
    return finish(&s);
}

/* How a process is told of device i of this node: where the driver sees a part of the
 * machine's devices, by their names there. */
static void add_device_name(struct ms_buf *out, uint32_t device, uint32_t count)
{
    const char *driver = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t named = driver && *driver ? 1 : 0;

    for (const char *c = driver; c && *c; c++)
        named += *c == ',';
    if (!driver || named != count) {
        ms_buf_printf(out, "%u", device);
        return;
    }
    for (; device > 0; device--)
        driver = strchr(driver, ',') + 1;
    ms_buf_append(out, driver, strcspn(driver, ","));
}

static void
add_devices(struct strings *s, const struct ms_capi_rank_env *e, uint32_t rank)
{
    uint32_t n = e->plan->devices_per_worker;
    const uint32_t *devices = e->plan->devices + (size_t)rank * n;
    struct ms_buf visible, digits;

    ms_buf_init(&visible);
    ms_buf_init(&digits);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            ms_buf_append(&visible, ",", 1);
        add_device_name(&visible, devices[i], e->gpus_per_node);
        ms_buf_printf(&digits, "%s%u", i ? "" : "-G", devices[i]);
    }
    if (!ms_buf_str(&visible) || !ms_buf_str(&digits))
        s->failed = true;
    else {
        add(s, "CUDA_VISIBLE_DEVICES=%s", ms_buf_str(&visible));
        add(s, "WORKER_NAME=%s-%u%s", e->cluster, rank, ms_buf_str(&digits));
    }
    ms_buf_finish(&visible);
    ms_buf_finish(&digits);
}

char **ms_capi_rank_env(const struct ms_capi_rank_env *e, uint32_t rank)
{
    uint32_t node = e->plan->nodes[rank], local = 0, beside = 0;
    struct strings s = {0};

    for (uint32_t r = 0; r < e->plan->world_size; r++) {
        local += e->plan->nodes[r] == node && r < rank;
        beside += e->plan->nodes[r] == node;
    }
    add(&s, "RANK=%u", rank);
    add(&s, "WORLD_SIZE=%u", e->plan->world_size);
    add(&s, "LOCAL_RANK=0");
    add(&s, "MUSTER_LOCAL_RANK=%u", local);
    add(&s, "LOCAL_WORLD_SIZE=%u", beside);
    add(&s, "NODE_RANK=%u", node);
    add(&s, "MASTER_ADDR=%s", e->master_host);
    add(&s, "MASTER_PORT=%u", e->master_port);
    add(&s, "CLUSTER_NAME=%s", e->cluster);
    add_devices(&s, e, rank);
    for (const char *const *user = e->user; user && *user; user++)
        add(&s, "%s", *user);
    return finish(&s);
}
