#include "orchestrator/ray/far_state.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"
#include "io/tree.h"
#include "orchestrator/ray/offer.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { STATE_MAX = 16 << 10 };

/* The folder, and the name of the file in it; -1: there is no state. */
static int open_dir(const struct ms_ray_options *o, char name[MS_NAME_MAX + 16])
{
    if (o->grace_ns <= 0 || !o->state_dir)
        return -1;
    snprintf(name, MS_NAME_MAX + 16, "ray-%s.json", o->name);
    return ms_tree_open(AT_FDCWD, o->state_dir);
}

/* The texts behind each other in one block. */
struct kept {
    uint8_t secret[MS_OFFER_KEY];
    char id[MS_NAME_MAX + 32];
    char bridge_at[MS_ADDR_LIST_MAX + 1];
};

static bool fill(const json_t *o, const char *address, struct ms_far_state *s)
{
    const char *of = json_string_value(json_object_get(o, "address")),
               *id = json_string_value(json_object_get(o, "job")),
               *secret = json_string_value(json_object_get(o, "secret")),
               *at = json_string_value(json_object_get(o, "bridge"));
    json_int_t port = json_integer_value(json_object_get(o, "port"));
    struct kept *k;

    if (!of || !id || !secret || !at || strcmp(of, address) != 0 || port < 0 ||
        port > UINT16_MAX || strlen(id) >= sizeof k->id ||
        strlen(at) > MS_ADDR_LIST_MAX)
        return false;
    k = calloc(1, sizeof *k);
    if (!k || ms_unhex(secret, k->secret, sizeof k->secret) < 0) {
        free(k);
        return false;
    }
    snprintf(k->id, sizeof k->id, "%s", id);
    snprintf(k->bridge_at, sizeof k->bridge_at, "%s", at);
    *s = (struct ms_far_state){.id = k->id,
                               .secret = k->secret,
                               .bridge_at = k->bridge_at,
                               .port = (uint16_t)port,
                               .memory = k};
    return true;
}

int ms_far_state_read(const struct ms_ray_options *o, struct ms_far_state *s)
{
    char name[MS_NAME_MAX + 16], text[STATE_MAX];
    MS_CLEANUP(ms_cleanup_fd) int dir = open_dir(o, name);
    int len = dir < 0 ? -ENOENT : ms_tree_read(dir, name, text, sizeof text);
    json_t *object = len > 0 ? json_loadb(text, (size_t)len, 0, NULL) : NULL;
    bool good = object && fill(object, o->site.address, s);

    json_decref(object);
    OPENSSL_cleanse(text, sizeof text);
    return good ? 0 : -ENOENT;
}

void ms_far_state_finish(struct ms_far_state *s)
{
    if (s->memory)
        OPENSSL_cleanse(s->memory, sizeof(struct kept));
    free(s->memory);
    s->memory = NULL;
}

void ms_far_state_write(const struct ms_ray_options *o, const struct ms_far_state *s)
{
    char name[MS_NAME_MAX + 16], hex[2 * MS_OFFER_KEY + 1];
    MS_CLEANUP(ms_cleanup_fd) int dir = open_dir(o, name);
    json_t *object;
    char *text;

    if (dir < 0)
        return;
    ms_hex(s->secret, MS_OFFER_KEY, hex);
    object = json_pack("{s:s, s:s, s:s, s:s, s:i}",
                       "address",
                       o->site.address,
                       "job",
                       s->id,
                       "secret",
                       hex,
                       "bridge",
                       s->bridge_at,
                       "port",
                       (int)s->port);
    text = object ? json_dumps(object, 0) : NULL;
    ms_tree_remove(dir, name);
    if (text)
        ms_tree_write(dir, name, text, strlen(text));
    free(text);
    json_decref(object);
    OPENSSL_cleanse(hex, sizeof hex);
}

void ms_far_state_remove(const struct ms_ray_options *o)
{
    char name[MS_NAME_MAX + 16];
    MS_CLEANUP(ms_cleanup_fd) int dir = open_dir(o, name);

    if (dir >= 0)
        ms_tree_remove(dir, name);
}
