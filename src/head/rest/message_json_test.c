/* message_json_test.c - tests of message_json.h: any message as JSON, and the
 * other way round */
#include "base/clock.h"
#include "head/rest/message_json.h"
#include "proto/muster.pb-c.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* What JSON becomes; the caller's. Fails unless it gives `code`. */
static ProtobufCMessage *
parse(const ProtobufCMessageDescriptor *d, const char *text, int code)
{
    ProtobufCMessage *m = ms_proto_create(d);
    json_t *object = json_loads(text, 0, NULL);
    struct ms_error err = {0};

    assert_non_null(m);
    assert_non_null(object);
    assert_int_equal(ms_message_parse(m, object, &err), code);
    assert_true(!code || err.text[0]);
    json_decref(object);
    return m;
}

static void refused(const ProtobufCMessageDescriptor *d, const char *text)
{
    protobuf_c_message_free_unpacked(parse(d, text, -EINVAL), NULL);
}

static void assert_prints(const ProtobufCMessage *m, const char *text)
{
    json_t *want = json_loads(text, 0, NULL), *got = ms_message_print(m);

    assert_non_null(want);
    if (!json_equal(want, got))
        fail_msg("%s", json_dumps(got, 0));
    json_decref(want);
    json_decref(got);
}

static void test_all_kinds_there_and_back(void **state)
{
    static const char text[] =
        "{\"name\": \"g\", \"strategy\": \"PACK\", \"same\": \"rack\", \"timeout\": "
        "1.5,"
        " \"detached\": true, \"ends_with_cluster\": false, \"scope\": {\"nodes\": "
        "[\"a\", \"b\"], \"num_nodes\": 2,"
        " \"is_limited\": false, \"devices_per_node\": 0}, \"bundles\": [{"
        " \"cpu_milli\": 500, \"memory\": \"9007199254740993\", \"devices\": 1,"
        " \"share_milli\": 0, \"device_memory\": 0, \"kind\": \"\", \"one_domain\": "
        "true,"
        " \"resources\": [], \"labels\": [], \"count\": 3}]}";
    Muster__PlaceGroup *m =
        (Muster__PlaceGroup *)parse(&muster__place_group__descriptor, text, 0);

    (void)state;
    assert_string_equal(m->name, "g");
    assert_int_equal(m->timeout_ns, 1500 * MS_NS_PER_MS);
    assert_true(m->detached);
    assert_int_equal(m->scope->n_nodes, 2);
    assert_string_equal(m->scope->nodes[1], "b");
    assert_int_equal(m->n_bundles, 1);
    assert_int_equal(m->bundles[0]->cpu_milli, 500);
    assert_true(m->bundles[0]->memory == 9007199254740993ull);
    assert_prints(&m->base, text);
    muster__place_group__free_unpacked(m, NULL);
}

static void test_bytes_and_names(void **state)
{
    Muster__KvPut *m = (Muster__KvPut *)parse(
        &muster__kv_put__descriptor,
        "{\"key\": \"k\", \"value\": \"AAH/\", \"owner\": \"KV_NONE\"}",
        0);

    (void)state;
    assert_int_equal(m->value.len, 3);
    assert_memory_equal(m->value.data, "\0\1\xff", 3);
    assert_int_equal(m->owner, MUSTER__KV_OWNER__KV_NONE);
    assert_prints(&m->base,
                  "{\"key\": \"k\", \"value\": \"AAH/\", \"codec\": 0,"
                  " \"owner\": \"KV_NONE\", \"only_if_absent\": false}");
    muster__kv_put__free_unpacked(m, NULL);
}

static void test_one_of_several(void **state)
{
    Muster__DriverToHead *m = (Muster__DriverToHead *)parse(
        &muster__driver_to_head__descriptor, "{\"kv_delete\": {\"key\": \"k\"}}", 0);

    (void)state;
    assert_int_equal(m->body_case, MUSTER__DRIVER_TO_HEAD__BODY_KV_DELETE);
    assert_string_equal(m->kv_delete->key, "k");
    assert_prints(&m->base,
                  "{\"request\": 0, \"kv_delete\": {\"key\": \"k\"}, \"answered\": 0,"
                  " \"arrived\": []}");
    muster__driver_to_head__free_unpacked(m, NULL);
    refused(&muster__driver_to_head__descriptor,
            "{\"kv_delete\": {\"key\": \"k\"}, \"kv_get\": {\"key\": \"k\"}}");
}

static void test_what_is_wrong_is_refused(void **state)
{
    const ProtobufCMessageDescriptor *put = &muster__kv_put__descriptor;
    const ProtobufCMessageDescriptor *stop = &muster__stop_request__descriptor;
    const ProtobufCMessageDescriptor *group = &muster__place_group__descriptor;

    (void)state;
    refused(put, "{\"nothing\": 1}");
    refused(put, "{\"key\": 1}");
    refused(put, "{\"key\": null}");
    refused(put, "{\"value\": \"a\"}");
    refused(put, "{\"value\": [1]}");
    refused(put, "{\"codec\": -1}");
    refused(put, "{\"codec\": 1.5}");
    refused(put, "{\"codec\": 4294967296}");
    refused(put, "{\"codec\": \"\"}");
    refused(put, "{\"owner\": \"SOMEBODY\"}");
    refused(put, "{\"owner\": 0}");
    refused(put, "{\"only_if_absent\": 1}");
    refused(stop, "{\"grace_ns\": 1}"); /* its name is "grace" */
    refused(stop, "{\"grace\": -1}");
    refused(stop, "{\"grace\": 3601}");
    refused(stop, "{\"grace\": \"soon\"}");
    refused(group, "{\"bundles\": {}}");
    refused(group, "{\"bundles\": [{\"devices\": 1}, 7]}");
    refused(group, "{\"bundles\": [{\"devices\": 1}, {\"devices\": -1}]}");
    refused(group, "{\"scope\": {\"nodes\": [\"a\", 1]}}");
    refused(group, "{\"scope\": []}");
}

static void test_text_of_a_query(void **state)
{
    Muster__StopRequest *m =
        (Muster__StopRequest *)ms_proto_create(&muster__stop_request__descriptor);
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_message_parse_text(&m->base, "cluster", "a", &err), 0);
    assert_int_equal(ms_message_parse_text(&m->base, "cluster", "12", &err), 0);
    assert_int_equal(ms_message_parse_text(&m->base, "grace", "0.25", &err), 0);
    assert_int_equal(ms_message_parse_text(&m->base, "head", "true", &err), 0);
    assert_string_equal(m->cluster, "12");
    assert_int_equal(m->grace_ns, 250 * MS_NS_PER_MS);
    assert_true(m->head);
    assert_int_equal(ms_message_parse_text(&m->base, "grace", "0.3", &err), 0);
    assert_int_equal(m->grace_ns, 300 * MS_NS_PER_MS);
    assert_int_equal(ms_message_parse_text(&m->base, "head", "yes", &err), -EINVAL);
    assert_int_equal(ms_message_parse_text(&m->base, "grace", "", &err), -EINVAL);
    assert_int_equal(ms_message_parse_text(&m->base, "grace", "1s", &err), -EINVAL);
    assert_int_equal(ms_message_parse_text(&m->base, "cluster", "\xff", &err), -EINVAL);
    assert_int_equal(ms_message_parse_text(&m->base, "x", "1", &err), -EINVAL);
    assert_non_null(strstr(err.text, "'x'"));
    muster__stop_request__free_unpacked(m, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds_there_and_back),
        cmocka_unit_test(test_bytes_and_names),
        cmocka_unit_test(test_one_of_several),
        cmocka_unit_test(test_what_is_wrong_is_refused),
        cmocka_unit_test(test_text_of_a_query),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
