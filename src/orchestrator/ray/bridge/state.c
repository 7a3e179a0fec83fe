/* state.c - the file by which the next controller finds the bridge of the one before */
#include "orchestrator/ray/bridge/state.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/name.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { STATE_MAX = 16 << 10, FILE_NAME_MAX = MS_NAME_MAX + 16 };

/* The folder, and the name of the file in it; -1: there is no state. */
static int open_dir(const struct ms_ray_options *o, char name[FILE_NAME_MAX])
{
    if (o->grace_ns <= 0 || !o->state_dir)
        return -1;
    snprintf(name, FILE_NAME_MAX, "ray-%s.json", o->name);
    return ms_tree_open(AT_FDCWD, o->state_dir);
}

static bool
parse(const char *text, size_t len, const char *address, struct ms_bridge_state *out)
{
    struct ms_bridge_state s = {0};
    json_t *o = json_loadb(text, len, 0, NULL);
    const char *of, *job, *secret, *at;
    int port;
    bool is_good = json_unpack(o,
                               "{s:s, s:s, s:s, s:s, s:i}",
                               "address",
                               &of,
                               "job",
                               &job,
                               "secret",
                               &secret,
                               "bridge",
                               &at,
                               "port",
                               &port) == 0 &&
                   strcmp(of, address) == 0 && port >= 0 && port <= UINT16_MAX &&
                   strlen(job) < sizeof s.job && strlen(at) < sizeof s.bridge_at &&
                   ms_unhex(secret, s.secret, sizeof s.secret) == 0;

    if (is_good) {
        strcpy(s.job, job);
        strcpy(s.bridge_at, at);
        s.port = (uint16_t)port;
        *out = s;
    }
    json_decref(o);
    OPENSSL_cleanse(s.secret, sizeof s.secret);
    return is_good;
}

int ms_bridge_state_read(const struct ms_ray_options *o, struct ms_bridge_state *s)
{
    char name[FILE_NAME_MAX], text[STATE_MAX];
    MS_CLEANUP(ms_cleanup_fd) int dir = open_dir(o, name);
    int len = dir < 0 ? -ENOENT : ms_tree_read(dir, name, text, sizeof text);
    bool is_good = len > 0 && parse(text, (size_t)len, o->site.address, s);

    OPENSSL_cleanse(text, sizeof text);
    return is_good ? 0 : -ENOENT;
}

void ms_bridge_state_write(const struct ms_ray_options *o,
                           const struct ms_bridge_state *s)
{
    char name[FILE_NAME_MAX], hex[2 * MS_WIRE_SECRET + 1];
    MS_CLEANUP(ms_cleanup_fd) int dir = open_dir(o, name);
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    json_t *object;

    if (dir < 0)
        return;
    ms_hex(s->secret, sizeof s->secret, hex);
    object = MS_JSON({"address", json_string(o->site.address)},
                     {"job", json_string(s->job)},
                     {"secret", json_string(hex)},
                     {"bridge", json_string(s->bridge_at)},
                     {"port", json_integer(s->port)});
    text = object ? json_dumps(object, 0) : NULL;
    ms_tree_remove(dir, name);
    if (text)
        ms_tree_write(dir, name, text, strlen(text));
    json_decref(object);
    OPENSSL_cleanse(hex, sizeof hex);
}

void ms_bridge_state_remove(const struct ms_ray_options *o)
{
    char name[FILE_NAME_MAX];
    MS_CLEANUP(ms_cleanup_fd) int dir = open_dir(o, name);

    if (dir >= 0)
        ms_tree_remove(dir, name);
}
