#include "base/name.h"
#include "io/json.h"
#include "io/session/secret.h"
#include "orchestrator/ray/ray_impl.h"
#include "orchestrator/ray/rest.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

/* "a", "!a", "in(a,b)", "!in(a,b)": as Ray writes them. */
static json_t *condition(const struct ms_condition *c)
{
    json_t *text = json_string(c->negated ? "!" : "");

    for (size_t i = 0; text && i < c->value_count; i++) {
        const char *before = c->value_count == 1 ? "" : i == 0 ? "in(" : ",";
        const char *behind = c->value_count > 1 && i + 1 == c->value_count ? ")" : "";
        json_t *longer = json_sprintf(
            "%s%s%s%s", json_string_value(text), before, c->values[i], behind);

        json_decref(text);
        text = longer;
    }
    return text;
}

static json_t *labels_of(const struct ms_bundle *b)
{
    json_t *o = json_object();

    for (size_t i = 0; o && b->selector && i < b->selector->count; i++)
        json_object_set_new(
            o, b->selector->conditions[i].name, condition(&b->selector->conditions[i]));
    return o;
}

static json_t *resources_of(const struct ms_bundle *b)
{
    json_t *o = json_object();

    for (size_t i = 0; o && i < b->extra_count; i++)
        json_object_set_new(
            o, b->extras[i].name, json_integer((json_int_t)b->extras[i].amount));
    return o;
}

static json_t *piece_of(const struct ms_bundle *b)
{
    double gpus = b->devices ? b->devices : b->share_milli / 1000.0;

    return json_pack("{s:f, s:f, s:I, s:o, s:o}",
                     "cpus",
                     (double)b->cpu_milli / 1000.0,
                     "gpus",
                     gpus,
                     "memory",
                     (json_int_t)b->memory,
                     "resources",
                     resources_of(b),
                     "labels",
                     labels_of(b));
}

/* The secret itself goes: there is no file of ours where the agents are. It travels by
 * Muster's wire alone. */
static json_t *agent_of(const struct ms_agent_start *a, struct ms_error *err)
{
    uint8_t secret[MS_SECRET_FILE_SIZE];
    char hex[2 * MS_SECRET_FILE_SIZE + 1] = "";
    json_t *o;

    if (a->secret_file && ms_secret_read(a->secret_file, secret, err) < 0)
        return NULL;
    if (a->secret_file)
        ms_hex(secret, sizeof secret, hex);
    o = json_pack("{s:s?, s:s?, s:o}",
                  "head",
                  a->head,
                  "secret",
                  a->secret_file ? hex : NULL,
                  "env",
                  ms_ray_env_object(a->env));
    OPENSSL_cleanse(secret, sizeof secret);
    OPENSSL_cleanse(hex, sizeof hex);
    return o;
}

json_t *
ms_ray_ask_pieces(const char *verb, const struct ms_reserve *r, struct ms_error *err)
{
    static const struct ms_agent_start none = {0};
    json_t *agent = agent_of(r->agent ? r->agent : &none, err), *pieces, *o;

    if (!agent)
        return NULL;
    pieces = json_array();
    for (size_t i = 0; pieces && i < r->pieces.count; i++)
        if (json_array_append_new(pieces, piece_of(&r->pieces.bundles[i])) < 0) {
            json_decref(pieces);
            pieces = NULL;
        }
    o = pieces ? json_pack("{s:s, s:s, s:o, s:s, s:s?, s:o}",
                           "verb",
                           verb,
                           "key",
                           r->key,
                           "pieces",
                           pieces,
                           "strategy",
                           ms_strategy_name(r->pieces.strategy),
                           "same",
                           r->pieces.same,
                           "agent",
                           agent)
               : NULL;
    if (!pieces)
        json_decref(agent);
    if (!o)
        ms_error_set(err, -ENOMEM, "out of memory");
    return o;
}

json_t *ms_ray_ask_release(const char *key, const uint32_t *numbers, size_t count)
{
    json_t *o = json_pack("{s:s, s:s}", "verb", "release", "key", key), *list;

    if (!o || count == 0)
        return o;
    list = json_array();
    for (size_t i = 0; list && i < count; i++)
        json_array_append_new(list, json_integer(numbers[i]));
    if (!list || json_array_size(list) != count ||
        json_object_set_new(o, "pieces", list) < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
