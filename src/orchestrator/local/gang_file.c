/* gang_file.c - what is lent, in a file, so that the next controller has it and its agents */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "io/supervised.h"
#include "io/tree.h"
#include "orchestrator/local/local_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file is written anew with each change and then takes the place of the one before: a
 * process that is killed leaves one of both. */

enum { PATH_ROOM = 4096, FILE_MAX = 64 << 20 };

/* ---- writing ----------------------------------------------------------------------- */

static Muster__LocalPiece *tell_piece(const struct gang *g, size_t i)
{
    const struct ms_bundle *b = &g->pieces.bundles[i];
    Muster__LocalPiece m = MUSTER__LOCAL_PIECE__INIT, *out;

    m.cpu_milli = b->cpu_milli;
    m.memory = b->memory;
    m.devices = b->devices;
    m.share_milli = b->share_milli;
    m.device_memory = b->device_memory;
    m.kind = b->kind;
    m.node = g->placement.nodes[i];
    m.indexes = g->placement.devices + g->placement.first[i];
    m.n_indexes = g->placement.first[i + 1] - g->placement.first[i];
    m.is_released = g->is_released[i];
    out = (Muster__LocalPiece *)ms_proto_copy(&m.base);
    for (size_t k = 0; out && k < b->extra_count; k++) {
        Muster__NamedAmount e = MUSTER__NAMED_AMOUNT__INIT;

        e.name = ms_field_text(b->extras[k].name);
        e.amount = b->extras[k].amount;
        if (!ms_proto_append(&out->extras, &out->n_extras, ms_proto_copy(&e.base))) {
            muster__local_piece__free_unpacked(out, NULL);
            return NULL;
        }
    }
    return out;
}

static Muster__LocalAgent *tell_agent(const struct part *p)
{
    Muster__LocalAgent m = MUSTER__LOCAL_AGENT__INIT;

    m.node = p->node;
    m.name = (char *)(uintptr_t)p->name;
    m.process = (char *)(uintptr_t)p->process;
    m.is_over = p->is_over;
    return (Muster__LocalAgent *)ms_proto_copy(&m.base);
}

/* Its mark is that of the reservation: the gang that was asked for first may be gone. */
static Muster__LocalGang *tell_gang(const struct gang *g)
{
    const struct ms_inventory_entry *r =
        ms_inventory_find(&g->local->controller.inventory, g->key);
    Muster__LocalGang m = MUSTER__LOCAL_GANG__INIT, *out;
    bool is_good;

    m.key = (char *)(uintptr_t)g->key;
    m.first = g->first;
    m.mark = r ? (uint64_t)(uintptr_t)r->owner : g->mark;
    m.secret_file = ms_field_text(g->start.secret_file);
    out = (Muster__LocalGang *)ms_proto_copy(&m.base);
    is_good = out != NULL;
    for (size_t i = 0; is_good && i < g->pieces.count; i++)
        is_good = ms_proto_append(&out->pieces, &out->n_pieces, tell_piece(g, i));
    ms_list_each (p, &g->parts, struct part, link)
        is_good =
            is_good && ms_proto_append(&out->agents, &out->n_agents, tell_agent(p));
    if (is_good)
        return out;
    muster__local_gang__free_unpacked(out, NULL);
    return NULL;
}

static int write_file(const char *path, const struct ms_buf *data, struct ms_error *err)
{
    char next[PATH_ROOM];
    int fd, rc = 0;

    snprintf(next, sizeof next, "%.*s.new", (int)sizeof next - 8, path);
    fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    for (size_t at = 0; fd >= 0 && rc == 0 && at < data->len;) {
        ssize_t n = write(fd, data->data + at, data->len - at);

        if (n < 0)
            rc = -errno;
        else
            at += (size_t)n;
    }
    if (fd < 0 || (close(fd) < 0 && rc == 0))
        rc = -errno;
    if (rc == 0 && rename(next, path) < 0)
        rc = -errno;
    return rc < 0 ? ms_error_sys(err, rc, "cannot write '%s'", path) : 0;
}

/* Nothing is lent: there is no file. */
static int remove_file(const char *path, struct ms_error *err)
{
    if (unlink(path) < 0 && errno != ENOENT)
        return ms_error_sys(err, -errno, "cannot remove '%s'", path);
    return 0;
}

int ms_gang_file_write(struct local *l, struct ms_error *err)
{
    Muster__LocalGangs *m;
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    bool is_good = true;
    int rc;

    if (!l->state_path)
        return 0;
    m = (Muster__LocalGangs *)ms_proto_create(&muster__local_gangs__descriptor);
    ms_list_each (g, &l->gangs, struct gang, link)
        if (g->is_placed && (g->left > 0 || !ms_list_is_empty(&g->parts)))
            is_good =
                is_good && m && ms_proto_append(&m->gangs, &m->n_gangs, tell_gang(g));
    is_good = is_good && m && ms_proto_pack(&m->base, &packed) == 0;
    if (!is_good)
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    else if (m->n_gangs == 0)
        rc = remove_file(l->state_path, err);
    else
        rc = write_file(l->state_path, &packed, err);
    muster__local_gangs__free_unpacked(m, NULL);
    l->is_unkept = rc < 0;
    return rc;
}

/* ---- an agent whose number was not written down ------------------------------------- */

/* The words of a process, each with a NUL behind it. */
struct words {
    char text[PATH_ROOM];
    int len;
};

static const char *next_word(const struct words *w, const char *word)
{
    word += strlen(word) + 1;
    return word < w->text + w->len ? word : NULL;
}

/* This option, with this word behind it. */
static bool has_words(const struct words *w, const char *option, const char *value)
{
    const char *behind;

    for (const char *at = w->len > 0 ? w->text : NULL; at; at = behind) {
        behind = next_word(w, at);
        if (behind && strcmp(at, option) == 0 && strcmp(behind, value) == 0)
            return true;
    }
    return false;
}

/* It is `muster agent` of this node, of our executable and with the secret of the head that
 * began to start it; and so is its supervisor, its parent, which is meant. */
static bool
is_agent(pid_t pid, const char *name, const char *path, const char *secret_file)
{
    struct words w = {0};
    char where[32];

    snprintf(where, sizeof where, "/proc/%d/cmdline", (int)pid);
    w.len = ms_tree_read(AT_FDCWD, where, w.text, sizeof w.text);
    return has_words(&w, path, "agent") && has_words(&w, "--node-name", name) &&
           (!secret_file[0] || has_words(&w, "--secret-file", secret_file));
}

static pid_t
find_agent(const struct local *l, const char *name, const char *secret_file)
{
    MS_CLEANUP(ms_cleanup_dir) DIR *proc = opendir("/proc");
    const struct dirent *e;

    while (proc && (e = readdir(proc))) {
        pid_t pid = (pid_t)atoi(e->d_name);

        /* a supervisor leads its session */
        if (pid > 1 && pid != getpid() && getsid(pid) == pid &&
            is_agent(pid, name, l->agent_path, secret_file))
            return pid;
    }
    return 0;
}

/* ---- reading ----------------------------------------------------------------------- */

static int take_bundles(struct gang *g, const Muster__LocalGang *m)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_bundle *bundles = calloc(m->n_pieces, sizeof *bundles);
    size_t count = 0, at = 0;
    MS_CLEANUP(ms_cleanup_free) struct ms_extra_need *extras = NULL;

    for (size_t i = 0; i < m->n_pieces; i++)
        count += m->pieces[i]->n_extras;
    extras = calloc(count + 1, sizeof *extras);
    if (!bundles || !extras)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_pieces; i++) {
        const Muster__LocalPiece *p = m->pieces[i];

        bundles[i] = (struct ms_bundle){.cpu_milli = p->cpu_milli,
                                        .memory = p->memory,
                                        .devices = p->devices,
                                        .share_milli = p->share_milli,
                                        .device_memory = p->device_memory,
                                        .kind = (uint8_t)p->kind,
                                        .extras = extras + at,
                                        .extra_count = p->n_extras};
        for (size_t k = 0; k < p->n_extras; k++)
            extras[at++] =
                (struct ms_extra_need){p->extras[k]->name, p->extras[k]->amount};
    }
    return ms_place_request_copy(&g->pieces,
                                 &(struct ms_place_request){.name = g->key,
                                                            .bundles = bundles,
                                                            .count = m->n_pieces});
}

static int take_places(struct gang *g, const Muster__LocalGang *m)
{
    struct ms_placement *p = &g->placement;
    uint32_t total = 0;

    for (size_t i = 0; i < m->n_pieces; i++)
        total += (uint32_t)m->pieces[i]->n_indexes;
    p->count = m->n_pieces;
    p->nodes = calloc(m->n_pieces, sizeof *p->nodes);
    p->first = calloc(m->n_pieces + 1, sizeof *p->first);
    p->devices = calloc(total + 1, sizeof *p->devices);
    g->is_released = calloc(m->n_pieces, sizeof *g->is_released);
    if (!p->nodes || !p->first || !p->devices || !g->is_released)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_pieces; i++) {
        const Muster__LocalPiece *piece = m->pieces[i];

        p->nodes[i] = piece->node;
        p->first[i + 1] = p->first[i] + (uint32_t)piece->n_indexes;
        for (size_t k = 0; k < piece->n_indexes; k++)
            p->devices[p->first[i] + k] = piece->indexes[k];
        g->is_released[i] = piece->is_released;
        g->left += !piece->is_released;
    }
    return 0;
}

/* Its nodes and devices are there, so that the stock can be held. */
static bool fits(const struct local *l, const Muster__LocalGang *m)
{
    for (size_t i = 0; i < m->n_pieces; i++) {
        const Muster__LocalPiece *p = m->pieces[i];

        if (p->node >= l->nodes.count ||
            p->n_indexes != (p->devices ? p->devices : (size_t)(p->share_milli > 0)))
            return false;
        for (size_t k = 0; k < p->n_indexes; k++)
            if (p->indexes[k] >= l->nodes.shapes[p->node]->n_devices)
                return false;
    }
    for (size_t i = 0; i < m->n_agents; i++)
        if (m->agents[i]->node >= l->nodes.count)
            return false;
    return m->n_pieces > 0 && strlen(m->key) <= MS_ORCH_KEY_MAX;
}

/* Pieces that are not released are in the inventory, as they were asked for. */
static int enter_pieces(struct gang *g)
{
    struct ms_inventory *all = &g->local->controller.inventory;
    struct ms_inventory_entry *r = ms_inventory_find(all, g->key);
    int rc = 0;

    if (!r && !(r = ms_inventory_add(all, g->key)))
        return -ENOMEM;
    r->owner = (void *)(uintptr_t)g->mark;
    for (size_t i = 0; i < g->pieces.count && rc == 0; i++) {
        uint32_t number = g->first + (uint32_t)i;

        if (!g->is_released[i])
            rc = ms_inventory_adopt_piece(r, number);
        if (r->next <= number)
            r->next = number + 1; /* numbers are never used again */
    }
    return rc;
}

static int
enter_agent(struct gang *g, const Muster__LocalAgent *m, const char *secret_file)
{
    struct part *p;
    int rc = ms_part_create(g, m->node);
    pid_t pid = 0;

    if (rc < 0)
        return rc;
    p = ms_list_entry(g->parts.prev, struct part, link);
    snprintf(p->name, sizeof p->name, "%s", m->name);
    if (!m->is_over && m->process[0])
        pid = ms_supervisor_find(m->process);
    else if (!m->is_over)
        pid = find_agent(g->local, p->name, secret_file);
    ms_part_adopt(p, pid);
    return 0;
}

static int enter_gang(struct local *l, const Muster__LocalGang *m)
{
    struct gang *g = calloc(1, sizeof *g);
    int rc;

    if (!g)
        return -ENOMEM;
    ms_list_init(&g->parts);
    g->local = l;
    g->first = m->first;
    g->mark = m->mark;
    g->is_placed = true;
    snprintf(g->key, sizeof g->key, "%s", m->key);
    ms_list_add_tail(&l->gangs, &g->link);
    rc = take_bundles(g, m);
    if (rc == 0)
        rc = take_places(g, m);
    if (rc == 0)
        rc = enter_pieces(g);
    if (rc < 0) {
        ms_gang_destroy(g);
        return rc;
    }
    ms_place_hold(&l->nodes.stock, &g->pieces, &g->placement);
    for (size_t i = 0; i < m->n_agents && rc == 0; i++)
        rc = enter_agent(g, m->agents[i], m->secret_file);
    return rc;
}

static int damaged(const struct local *l, struct ms_error *err)
{
    return ms_error_set(err,
                        -EBADMSG,
                        "'%s', which says what was lent, cannot be read: move it away "
                        "to begin anew; agents that still run are not known then",
                        l->state_path);
}

int ms_gang_file_read(struct local *l, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = open(l->state_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    off_t len = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = NULL;
    Muster__LocalGangs *m;
    int rc = 0;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || len < 0)
        return ms_error_sys(err, -errno, "cannot read '%s'", l->state_path);
    data = malloc((size_t)len + 1);
    if (!data || len > FILE_MAX || pread(fd, data, (size_t)len, 0) != len)
        return damaged(l, err);
    m = muster__local_gangs__unpack(NULL, (size_t)len, data);
    for (size_t i = 0; m && i < m->n_gangs && rc == 0; i++)
        rc = fits(l, m->gangs[i]) ? enter_gang(l, m->gangs[i]) : -EBADMSG;
    if (!m || rc == -EBADMSG)
        rc = damaged(l, err);
    else if (rc < 0)
        rc = ms_error_sys(err, rc, "'%s'", l->state_path);
    muster__local_gangs__free_unpacked(m, NULL);
    return rc;
}
