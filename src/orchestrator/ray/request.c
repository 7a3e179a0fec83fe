/* request.c - what is asked of the bridge, as JSON (doc/orchestrators.md) */
#include "base/json.h"
#include "base/name.h"
#include "io/session/secret.h"
#include "orchestrator/ray/job/job.h"
#include "orchestrator/ray/ray_impl.h"

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

    return MS_JSON({"cpus", json_real((double)b->cpu_milli / 1000.0)},
                   {"gpus", json_real(gpus)},
                   {"memory", json_integer((json_int_t)b->memory)},
                   {"resources", resources_of(b)},
                   {"labels", labels_of(b)});
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
    o = MS_JSON({"head", ms_json_string(a->head)},
                {"secret", ms_json_string(a->secret_file ? hex : NULL)},
                {"env", ms_ray_env_object(a->env)});
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
    json_t *pieces = pieces_of(op);

    if (json_array_size(pieces) != op->pieces.count) {
        json_decref(pieces);
        return NULL;
    }
    return MS_JSON({"verb", json_string(op->kind == MS_OP_GROW ? "grow" : "reserve")},
                   {"key", json_string(op->key)},
                   {"pieces", pieces},
                   {"strategy", json_string(ms_strategy_name(op->pieces.strategy))},
                   {"same", ms_json_string(op->pieces.same)},
                   {"agent", agent_of(&op->agent, err)},
                   {"timeout_s", json_real(timeout_s)});
}

json_t *
ms_ray_request(const struct ms_orch_op *op, double timeout_s, struct ms_error *err)
{
    if (ms_op_is_launch(op))
        return launch_of(op, timeout_s, err);
    if (op->kind == MS_OP_LIST)
        return MS_JSON({"verb", json_string("list")});
    if (op->kind == MS_OP_AVOID)
        return ms_ray_avoid_request(op->node, op->reason);
    return MS_JSON({"verb", json_string("release")},
                   {"key", json_string(op->key)},
                   {"pieces", numbers_of(op)});
}

json_t *ms_ray_avoid_request(const char *node, const char *reason)
{
    return MS_JSON({"verb", json_string("avoid")},
                   {"node", ms_json_string(node)},
                   {"reason", ms_json_string(reason)});
}
