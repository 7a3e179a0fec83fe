/* JSON of HTTP calls to C: what becomes a value becomes JSON again, and that stays as it is,
 * unless fields and values were taken out of objects (they may look like others then). */
#include "worker/native/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *back_and_forth(const json_t *json)
{
    struct ms_error err = {0};
    struct muster_value *v = ms_value_from_json(json, &err);
    json_t *again = NULL;

    if (!v) {
        assert(err.code < 0 && err.text[0]);
        return NULL;
    }
    assert(ms_value_to_json(v, &again) == 0);
    muster_value_destroy(v);
    return again;
}

static bool has(const uint8_t *data, size_t size, const char *text)
{
    return memmem(data, size, text, strlen(text)) != NULL;
}

static void look(const json_t *json, bool is_plain)
{
    json_t *once = back_and_forth(json), *twice = once ? back_and_forth(once) : NULL;

    assert(!once || !is_plain || (twice && json_equal(once, twice)));
    json_decref(once);
    json_decref(twice);
}

static void look_at_arguments(const json_t *json)
{
    struct ms_error err = {0};
    const json_t *args = json_object_get(json, "args");
    const json_t *kwargs = json_object_get(json, "kwargs");

    muster_value_destroy(ms_arguments_from_json(args, kwargs, &err));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json =
        json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

    if (!json)
        return 0;
    look(json,
         !has(data, size, "class_path") && !has(data, size, "torch_dtype") &&
             !has(data, size, "\\"));
    look_at_arguments(json);
    json_decref(json);
    return 0;
}
