/* request.c - names of phases and causes, and what any backend refuses of a request */
#include "base/name.h"
#include "orchestrator/orchestrator.h"

#include <errno.h>
#include <string.h>

const char *ms_phase_name(enum ms_phase p)
{
    static const char *const names[] = {"pending", "starting", "running", "ended"};

    return names[p];
}

const char *ms_cause_name(enum ms_cause c)
{
    static const char *const names[] = {"none",
                                        "released",
                                        "exited",
                                        "signaled",
                                        "out of memory",
                                        "preempted",
                                        "node lost",
                                        "refused",
                                        "unknown"};

    return names[c];
}

/* ---- what any backend refuses -------------------------------------------------------- */

static int check_bundle(const struct ms_orchestrator *o,
                        const struct ms_bundle *b,
                        struct ms_error *err)
{
    if (b->selector && b->selector->count > 0 && !(o->ops->can & MS_ORCH_LABELS))
        return ms_error_set(err, -ENOTSUP, "%s has no labels", o->ops->name);
    return ms_bundle_check(b, err);
}

int ms_reserve_check(const struct ms_orchestrator *o,
                     const struct ms_reserve *r,
                     struct ms_error *err)
{
    int rc = ms_name_check(r->key, "reservation", err);

    if (rc == 0 && strlen(r->key) > MS_ORCH_KEY_MAX)
        rc = ms_error_set(err,
                          -EINVAL,
                          "reservation '%.20s...': at most %zu characters",
                          r->key,
                          MS_ORCH_KEY_MAX);
    if (rc == 0 && (r->pieces.count == 0 || r->pieces.count > MS_ORCH_PIECES_MAX))
        rc = ms_error_set(err,
                          r->pieces.count ? -E2BIG : -EINVAL,
                          "reservation '%s': %zu pieces; from 1 to %zu are possible",
                          r->key,
                          r->pieces.count,
                          MS_ORCH_PIECES_MAX);
    if (rc == 0 && r->pieces.same && !(o->ops->can & MS_ORCH_SAME))
        rc = ms_error_set(
            err, -ENOTSUP, "%s cannot keep pieces within one label", o->ops->name);
    for (size_t i = 0; rc == 0 && i < r->pieces.count; i++)
        rc = check_bundle(o, &r->pieces.bundles[i], err);
    return rc;
}

/* ---- what names a request ----------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3U;
    return hash;
}

static uint64_t mix_number(uint64_t hash, uint64_t number)
{
    return mix(hash, &number, sizeof number);
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    return text ? mix(hash, text, strlen(text) + 1) : mix_number(hash, 0);
}

static uint64_t mix_bundle(uint64_t hash, const struct ms_bundle *b)
{
    const uint64_t numbers[] = {b->cpu_milli,
                                b->memory,
                                b->devices,
                                b->share_milli,
                                b->device_memory,
                                b->kind,
                                b->one_domain};

    hash = mix(hash, numbers, sizeof numbers);
    for (size_t i = 0; i < b->extra_count; i++)
        hash = mix_number(mix_text(hash, b->extras[i].name), b->extras[i].amount);
    for (size_t i = 0; b->selector && i < b->selector->count; i++) {
        const struct ms_condition *c = &b->selector->conditions[i];

        hash = mix_text(mix_text(hash, c->name), c->text);
    }
    return hash;
}

uint64_t ms_reserve_mark(const struct ms_place_request *r)
{
    uint64_t hash = 0xcbf29ce484222325U;

    hash = mix_text(mix_number(mix_number(hash, r->count), r->strategy), r->same);
    for (size_t i = 0; i < r->count; i++)
        hash = mix_bundle(hash, &r->bundles[i]);
    return hash;
}
