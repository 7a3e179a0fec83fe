/* message_json.h - any message as JSON, and the other way round
 *
 * By the descriptors that protobuf-c generates, so that a new field or message needs no code.
 * An object has the fields by their names in proto/muster.proto; bytes are base64 and
 * enumerations are names, as in protobuf's own mapping. Otherwise as the head's HTTP has it:
 *
 *  - a time `x_ns` is `x`, in seconds;
 *  - integers are numbers, those from 2^53 on strings of digits (readers would round them);
 *    both are read.
 *
 * What is read is checked: unknown fields, wrong types and numbers out of range are errors.
 */
#ifndef MS_HEAD_REST_MESSAGE_JSON_H
#define MS_HEAD_REST_MESSAGE_JSON_H

#include "base/error.h"
#include "base/proto.h"

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Every field that is set, and all that have a default. NULL: out of memory. */
json_t *ms_message_print(const ProtobufCMessage *m);
/* Some fields, by their names in the message: "name memory", or under another name in JSON:
 * "len=nbytes", or some fields of the messages in it: "holders(name pid)", of which one that
 * is absent is null. */
json_t *ms_message_print_fields(const ProtobufCMessage *m, const char *fields);

/* Set the fields that an object has. -EINVAL with the reason, -ENOMEM; some may be set then. */
int ms_message_parse(ProtobufCMessage *m, const json_t *object, struct ms_error *err);
/* One field, from the text of a path or query. */
int ms_message_parse_text(ProtobufCMessage *m,
                          const char *name,
                          const char *text,
                          struct ms_error *err);

/* ---- fields, by their names in JSON ---------------------------------------------------- */

/* NULL: there is none. */
const ProtobufCFieldDescriptor *
ms_message_field_find(const ProtobufCMessageDescriptor *d, const char *name);
/* A time, which JSON has in seconds: its name is without "_ns". */
bool ms_message_field_is_time(const ProtobufCFieldDescriptor *f);
/* Its name in JSON has so many characters of f->name. */
size_t ms_message_field_name_len(const ProtobufCFieldDescriptor *f);
/* What a value of it takes in the message, or in a repeated field's array. */
size_t ms_message_field_size(const ProtobufCFieldDescriptor *f);

#endif
