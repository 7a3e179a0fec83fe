#include "base/buf.h"
#include "capi/capi.h"
#include "resource/visible.h"

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

/* Where the process of a rank runs. */
static const Muster__Piece *place_of(const struct ms_capi_rank_env *e, uint32_t rank)
{
    return e->placed->ranks[rank]->pieces[0];
}

/* What its node has; NULL: nobody has told. */
static const Muster__NodeShape *shape_of(const struct ms_capi_rank_env *e,
                                         const char *node)
{
    const Muster__Status *s =
        (const Muster__Status *)ms_head_op_message(e->resources->status);

    for (size_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i]->alive && strcmp(s->nodes[i]->name, node) == 0)
            return s->nodes[i]->shape;
    return NULL;
}

static void add_visible(struct strings *s,
                        const Muster__NodeShape *shape,
                        const char *variable,
                        const Muster__Piece *place)
{
    struct ms_buf text;

    ms_buf_init(&text);
    if (ms_shape_visible(shape, variable, place->devices, place->n_devices, &text) <
            0 ||
        !ms_buf_str(&text))
        s->failed = true;
    else
        add(s, "%s=%s", variable, ms_buf_str(&text));
    ms_buf_finish(&text);
}

static void
add_devices(struct strings *s, const struct ms_capi_rank_env *e, uint32_t rank)
{
    const Muster__Piece *place = place_of(e, rank);
    const Muster__NodeShape *shape = shape_of(e, place->node);
    const char *variables[MS_DEVICE_VARIABLES_MAX];
    size_t count = ms_shape_variables(shape, variables);
    struct ms_buf digits;

    for (size_t i = 0; i < count; i++)
        add_visible(s, shape, variables[i], place);
    ms_buf_init(&digits);
    for (size_t i = 0; i < place->n_devices; i++)
        ms_buf_printf(&digits, "%s%u", i ? "" : "-G", place->devices[i]);
    if (!ms_buf_str(&digits))
        s->failed = true;
    else
        add(s, "WORKER_NAME=%s-%u%s", e->cluster, rank, ms_buf_str(&digits));
    ms_buf_finish(&digits);
}

/* Nodes of this cluster before that of this rank. */
static uint32_t node_rank(const struct ms_capi_rank_env *e, uint32_t rank)
{
    const char *node = place_of(e, rank)->node;
    uint32_t before = 0;

    for (uint32_t r = 0; r < rank && strcmp(place_of(e, r)->node, node) != 0; r++) {
        uint32_t k = 0;

        while (k < r && strcmp(place_of(e, k)->node, place_of(e, r)->node) != 0)
            k++;
        before += k == r; /* the first on its node */
    }
    return before;
}

char **ms_capi_rank_env(const struct ms_capi_rank_env *e, uint32_t rank)
{
    const char *node = place_of(e, rank)->node;
    uint32_t local = 0, beside = 0;
    struct strings s = {0};

    for (uint32_t r = 0; r < e->placed->n_ranks; r++) {
        bool same = strcmp(place_of(e, r)->node, node) == 0;

        local += same && r < rank;
        beside += same;
    }
    add(&s, "RANK=%u", rank);
    add(&s, "WORLD_SIZE=%zu", e->placed->n_ranks);
    add(&s, "LOCAL_RANK=0");
    add(&s, "MUSTER_LOCAL_RANK=%u", local);
    add(&s, "LOCAL_WORLD_SIZE=%u", beside);
    add(&s, "NODE_RANK=%u", node_rank(e, rank));
    add(&s, "MASTER_ADDR=%s", e->master_host);
    add(&s, "MASTER_PORT=%u", e->master_port);
    add(&s, "CLUSTER_NAME=%s", e->cluster);
    add_devices(&s, e, rank);
    for (const char *const *user = e->user; user && *user; user++)
        add(&s, "%s", *user);
    return finish(&s);
}
