/* join_welcome.c - a head's welcome, as the configuration of the agent */
#include "agent/join_impl.h"
#include "base/cleanup.h"
#include "wire/frame.h"
#include "wire/handshake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* protobuf-c's empty strings are not malloc'd. */
static int set_text(char **field, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    if (*field != protobuf_c_empty_string)
        free(*field);
    *field = copy;
    return 0;
}

/* What both sides have proven need not travel. */
static int set_secret(ProtobufCBinaryData *field, const uint8_t *secret)
{
    uint8_t *copy = malloc(MS_SECRET_SIZE);

    if (!copy)
        return -ENOMEM;
    memcpy(copy, secret, MS_SECRET_SIZE);
    free(field->data);
    field->data = copy;
    field->len = MS_SECRET_SIZE;
    return 0;
}

/* What was said here wins over what the head says. */
static int set_store(Muster__AgentConfig *config, const Muster__StoreConfig *ours)
{
    Muster__StoreConfig *s = config->store;

    if (!ours)
        return 0;
    if (!s) {
        config->store = s = malloc(sizeof *s);
        if (!s)
            return -ENOMEM;
        muster__store_config__init(s);
    }
    if (ours->is_told) {
        s->is_told = true;
        s->limit = ours->limit;
    }
    if (ours->spill_limit)
        s->spill_limit = ours->spill_limit;
    if (!ours->no_spill && !ours->spill_dir[0])
        return 0;
    s->no_spill = ours->no_spill;
    return set_text(&s->spill_dir, ours->spill_dir);
}

/* Take the configuration out of the message and make it ours. */
static int
take_config(struct ms_join *j, Muster__LinkWelcome *welcome, struct ms_error *err)
{
    struct ms_agent *a = j->agent;
    Muster__AgentConfig *config = welcome->config;
    int rc = ms_node_dir_open(&j->dir, welcome->session, j->node, err);

    if (rc < 0)
        return rc;
    a->config = MS_TAKE(welcome->config);
    if (set_secret(&config->secret, j->options->secret) < 0 ||
        set_text(&config->session, welcome->session) < 0 ||
        set_text(&config->session_dir, j->dir.dir) < 0 ||
        set_text(&config->node_name, j->node) < 0 ||
        set_store(config, j->options->store) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    config->driver_pid = 0;
    return ms_agent_set_up(a, err);
}

int ms_join_configure(struct ms_join *j,
                      Muster__LinkWelcome *welcome,
                      struct ms_error *err)
{
    const Muster__AgentConfig *config = welcome->config;

    if (!config)
        return ms_error_set(err, -EPROTO, "the head gave no configuration");
    if (config->protocol_version && config->protocol_version != MS_FRAME_VERSION)
        return ms_error_set(err,
                            -EPROTONOSUPPORT,
                            "the head speaks version %u, this agent %d: install the "
                            "same Muster on both",
                            config->protocol_version,
                            MS_FRAME_VERSION);
    if (!j->options->bind_count && config->n_bind &&
        ms_listen_init(
            &j->agent->listen, (const char *const *)config->bind, config->n_bind, err) <
            0)
        return err->code;
    return take_config(j, welcome, err);
}
