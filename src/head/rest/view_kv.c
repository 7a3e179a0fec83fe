#include "head/rest/view_kv.h"
#include "head/rest/message_json.h"
#include "io/json.h"

json_t *ms_view_kv_entry(const ProtobufCMessage *entry, int *status)
{
    json_t *out;

    if (!((const Muster__KvEntry *)entry)->key[0]) {
        *status = 404;
        return NULL;
    }
    out = ms_message_print(entry);
    json_object_del(out, "deleted"); /* of changes */
    return out;
}

json_t *ms_view_kv_keys(const ProtobufCMessage *events, int *status)
{
    const Muster__KvEvents *all = (const Muster__KvEvents *)events;
    json_t *keys = json_array();

    (void)status;
    for (size_t i = 0; i < all->n_entries; i++)
        json_array_append_new(keys,
                              json_pack("{s:o, s:I, s:I}",
                                        "key",
                                        ms_json_string(all->entries[i]->key),
                                        "codec",
                                        (json_int_t)all->entries[i]->codec,
                                        "revision",
                                        (json_int_t)all->entries[i]->revision));
    return json_pack("{s:o, s:I}", "keys", keys, "revision", (json_int_t)all->revision);
}
