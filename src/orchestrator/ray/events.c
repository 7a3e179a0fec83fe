/* events.c - what the bridge says: pieces, answers, and whether Ray answers it */
#include "orchestrator/ray/ray_impl.h"

#include <errno.h>
#include <string.h>

enum { DEVICES_MAX = 1024 };

static bool phase_of(const char *name, enum ms_phase *out)
{
    for (int p = MS_PHASE_PENDING; name && p <= MS_PHASE_ENDED; p++)
        if (strcmp(name, ms_phase_name((enum ms_phase)p)) == 0) {
            *out = (enum ms_phase)p;
            return true;
        }
    return false;
}

static enum ms_cause cause_of(const char *name)
{
    for (int c = MS_CAUSE_NONE; name && c < MS_CAUSE_UNKNOWN; c++)
        if (strcmp(name, ms_cause_name((enum ms_cause)c)) == 0)
            return (enum ms_cause)c;
    return name ? MS_CAUSE_UNKNOWN : MS_CAUSE_NONE;
}

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static size_t devices_of(const json_t *list, uint32_t *out)
{
    size_t count = json_array_size(list);

    count = count < DEVICES_MAX ? count : DEVICES_MAX;
    for (size_t i = 0; i < count; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return count;
}

/* The reservation with that piece in it. One of a bridge before has ended with it: this
 * is another one. Numbers are never used again, so what is below the next one and not
 * there is gone, but for a new controller that is told of all there is. */
static struct ms_inventory_entry *
piece_place(struct ray *r, const char *key, uint32_t number)
{
    struct ms_inventory_entry *m = ms_inventory_find(&r->controller.inventory, key);

    if (m && (uintptr_t)m->owner != r->life) {
        ms_inventory_remove(&r->controller.inventory, m);
        m = NULL;
    }
    if (!m && (m = ms_inventory_add(&r->controller.inventory, key)))
        m->owner = (void *)r->life;
    if (m && (number >= m->next || r->bridge == BRIDGE_STARTING) &&
        ms_inventory_adopt_piece(m, number) < 0)
        return NULL;
    return m;
}

static void on_piece(struct ray *r, const json_t *o)
{
    const char *key = text_of(o, "key");
    json_int_t number = json_integer_value(json_object_get(o, "number")),
               incarnation = json_integer_value(json_object_get(o, "incarnation"));
    uint32_t devices[DEVICES_MAX];
    struct ms_lent_piece said = {
        .number = (uint32_t)number,
        .incarnation = (uint32_t)incarnation,
        .cause = cause_of(text_of(o, "cause")),
        .code = (int)json_integer_value(json_object_get(o, "code")),
        .node = text_of(o, "node"),
        .agent = text_of(o, "agent"),
        .detail = text_of(o, "detail"),
        .devices = devices,
        .device_count = devices_of(json_object_get(o, "devices"), devices),
    };
    struct ms_inventory_entry *m;

    if (!key || strlen(key) > MS_ORCH_KEY_MAX || number < 0 ||
        number >= (json_int_t)MS_ORCH_PIECES_MAX || incarnation < 1 ||
        incarnation > UINT32_MAX || !phase_of(text_of(o, "phase"), &said.phase))
        return; /* of a newer bridge, or none at all */
    m = piece_place(r, key, said.number);
    if (m && ms_inventory_update(&r->controller.inventory, m, &said) > 0)
        ms_controller_news(&r->controller);
}

static void on_gone(struct ray *r, const json_t *o)
{
    const char *key = text_of(o, "key");
    const json_t *number = json_object_get(o, "number");
    struct ms_inventory_entry *m =
        key ? ms_inventory_find(&r->controller.inventory, key) : NULL;

    if (!m)
        return;
    if (json_is_integer(number))
        ms_inventory_remove_piece(
            &r->controller.inventory, m, (uint32_t)json_integer_value(number));
    if (!json_is_integer(number) || m->count == 0)
        ms_inventory_remove(&r->controller.inventory, m);
    ms_controller_news(&r->controller);
}

static void on_ray_silent(struct ray *r, const json_t *o)
{
    const char *why = text_of(o, "why");

    r->is_ray_silent = true;
    ms_error_set(&r->silence, -EAGAIN, "Ray does not answer: %s", why ? why : "");
    ms_controller_wake(&r->controller);
}

static void on_event(struct ray *r, const char *event, json_t *o)
{
    if (strcmp(event, "piece") == 0) {
        on_piece(r, o);
    } else if (strcmp(event, "gone") == 0) {
        on_gone(r, o);
    } else if (strcmp(event, "silent") == 0) {
        on_ray_silent(r, o);
    } else if (strcmp(event, "heard") == 0) {
        r->is_ray_silent = false;
        ms_controller_wake(&r->controller);
    } else if (strcmp(event, "hello") == 0 && r->bridge == BRIDGE_STARTING) {
        json_t *list = json_pack("{s:s}", "verb", "list");

        r->is_ray_silent = r->is_silent = false;
        if (list)
            ms_ray_send(r, list, &r->known_id); /* what a controller before has left */
        json_decref(list);
    }
}

void ms_ray_heard(struct ray *r, const char *line, size_t len)
{
    json_t *o = json_loadb(line, len, 0, NULL);
    const json_t *id = json_object_get(o, "id");
    const char *event = text_of(o, "event");

    if (event)
        on_event(r, event, o);
    else if (json_is_integer(id))
        ms_ray_answered(r,
                        (uint64_t)json_integer_value(id),
                        (int)json_integer_value(json_object_get(o, "rc")),
                        (uint32_t)json_integer_value(json_object_get(o, "first")),
                        text_of(o, "why"));
    json_decref(o);
}

void ms_ray_all_ended(struct ray *r, const struct ms_error *why)
{
    ms_list_each (m, &r->controller.inventory.all, struct ms_inventory_entry, link)
        for (size_t i = 0; i < m->count; i++) {
            struct ms_lent_piece said = *ms_inventory_piece_at(m, i);

            if (said.phase == MS_PHASE_ENDED)
                continue;
            said.phase = MS_PHASE_ENDED;
            said.cause = MS_CAUSE_UNKNOWN;
            said.detail = why->text;
            ms_inventory_update(&r->controller.inventory, m, &said);
        }
    ms_controller_news(&r->controller);
}
