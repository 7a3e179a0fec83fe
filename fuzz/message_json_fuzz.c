/* JSON of HTTP requests to a head: what becomes a message becomes JSON again, and that stays
 * as it is; what does not leaves a message that can be freed. */
#include "head/rest/message_json.h"
#include "proto/muster.pb-c.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NULL: it was refused. */
static json_t *back_and_forth(const json_t *json)
{
    struct ms_error err = {0};
    ProtobufCMessage *m = ms_proto_create(&muster__driver_to_head__descriptor);
    json_t *again = NULL;

    assert(m);
    if (ms_message_parse(m, json, &err) == 0) {
        again = ms_message_print(m);
        assert(again);
    } else {
        assert(err.code < 0 && err.text[0]);
    }
    protobuf_c_message_free_unpacked(m, NULL);
    return again;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    json_t *once = json_is_object(json) ? back_and_forth(json) : NULL;
    json_t *twice = once ? back_and_forth(once) : NULL;

    assert(!once || (twice && json_equal(once, twice)));
    json_decref(twice);
    json_decref(once);
    json_decref(json);
    return 0;
}
