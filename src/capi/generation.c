/* generation.c - what a job's file says of its schedulers, where a driver leaves it open */
#include "base/clock.h"
#include "capi/capi.h"
#include "capi/generate.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum kind { U32, U64, I64, NUMBER, SECONDS, TEXT };

/* The settings of src/job/file_generation.c that a scheduler in C has. */
#define ROW(kind, field)                                                               \
    {                                                                                  \
#field, kind, offsetof(struct muster_scheduler_options, field)                 \
    }
#define TIME(field)                                                                    \
    {                                                                                  \
#field, SECONDS, offsetof(struct muster_scheduler_options, field##_ns)         \
    }
static const struct {
    const char *key;
    enum kind kind;
    size_t offset;
} rows[] = {
    ROW(U32, slots),
    ROW(U32, kv_tokens),
    ROW(TEXT, policy),
    ROW(TEXT, history),
    ROW(U64, history_prompts),
    ROW(I64, max_staleness),
    ROW(U32, batch),
    ROW(U32, chunk),
    TIME(silence),
    TIME(probe),
    ROW(U32, poison),
    TIME(rebalance),
    TIME(session_ttl),
    ROW(NUMBER, ageing),
    ROW(NUMBER, max_bias),
    ROW(U64, seed),
};

static size_t size_of(enum kind kind)
{
    switch (kind) {
    case U32:
        return sizeof(uint32_t);
    case TEXT:
        return sizeof(const char *);
    default:
        return sizeof(int64_t);
    }
}

static void take(enum kind kind, const json_t *told, void *option)
{
    json_int_t whole = json_integer_value(told);

    switch (kind) {
    case U32:
        *(uint32_t *)option = (uint32_t)whole;
        break;
    case U64:
        *(uint64_t *)option = (uint64_t)whole;
        break;
    case I64:
        *(int64_t *)option = (int64_t)whole;
        break;
    case NUMBER:
        *(double *)option = json_number_value(told);
        break;
    case SECONDS:
        *(int64_t *)option = (int64_t)(json_number_value(told) * (double)MS_NS_PER_S);
        break;
    case TEXT:
        *(const char **)option = json_string_value(told);
        break;
    }
}

void ms_capi_generation_take(const json_t *job, struct muster_scheduler_options *o)
{
    const struct muster_scheduler_options initial = MUSTER_SCHEDULER_OPTIONS;
    const json_t *settings = json_object_get(job, "generation");

    for (size_t i = 0; i < MS_COUNT(rows); i++) {
        const json_t *told = json_object_get(settings, rows[i].key);
        char *option = (char *)o + rows[i].offset;

        if (told && memcmp(option,
                           (const char *)&initial + rows[i].offset,
                           size_of(rows[i].kind)) == 0)
            take(rows[i].kind, told, option);
    }
}
