/* request.c - what is asked of the bridge, as JSON (doc/orchestrators.md) */
#include "base/name.h"
#include "io/json.h"
#include "io/session/secret.h"
#include "orchestrator/ray/job/rest.h"
#include "orchestrator/ray/ray_impl.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

static json_t *labels_of(const struct ms_bundle *b)
{
    json_t *o = json_object();

    for (size_t i = 0; o && b->selector && i < b->selector->count; i++)
        json_object_set_new(o,
                            b->selector->conditions[i].name,
                            json_string(b->selector->conditions[i].text));
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

static json_t *pieces_of(const struct ms_orch_op *op)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < op->pieces.count; i++)
        json_array_append_new(list, piece_of(&op->pieces.bundles[i]));
    return list;
}

static json_t *numbers_of(const struct ms_orch_op *op)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < op->count; i++)
        json_array_append_new(list, json_integer(op->numbers[i]));
    return list;
}

static json_t *
launch_of(const struct ms_orch_op *op, double timeout_s, struct ms_error *err)
{
    json_t *agent = agent_of(&op->agent, err), *pieces = pieces_of(op);

    if (!agent || json_array_size(pieces) != op->pieces.count) {
        json_decref(agent);
        json_decref(pieces);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:s, s:s?, s:o, s:f}",
                     "verb",
                     op->kind == MS_OP_GROW ? "grow" : "reserve",
                     "key",
                     op->key,
                     "pieces",
                     pieces,
                     "strategy",
                     ms_strategy_name(op->pieces.strategy),
                     "same",
                     op->pieces.same,
                     "agent",
                     agent,
                     "timeout_s",
                     timeout_s);
}

json_t *
ms_ray_request(const struct ms_orch_op *op, double timeout_s, struct ms_error *err)
{
    if (ms_op_is_launch(op))
        return launch_of(op, timeout_s, err);
    if (op->kind == MS_OP_LIST)
        return json_pack("{s:s}", "verb", "list");
    if (op->kind == MS_OP_AVOID)
        return json_pack(
            "{s:s, s:s, s:s}", "verb", "avoid", "node", op->node, "reason", op->reason);
    return json_pack("{s:s, s:s, s:o*}",
                     "verb",
                     "release",
                     "key",
                     op->key,
                     "pieces",
                     op->count ? numbers_of(op) : NULL);
}
