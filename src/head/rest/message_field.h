/* message_field.h - a field of a message by its name in JSON; see message_json.h */
#ifndef MS_HEAD_REST_MESSAGE_FIELD_H
#define MS_HEAD_REST_MESSAGE_FIELD_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

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
