/* yaml.h - YAML files whose every value knows where it stands
 *
 * A document is read whole; values are then picked by tables of keys. Every error begins
 * with the file, the line and the column ("train.yaml:3:12: ..."), counted from 1. A key
 * that no table has is an error, and so is one that stands twice, and a value of another
 * type. Numbers and truth values are plain: what is quoted is text.
 *
 * This is the only header that knows of libyaml.
 */
#ifndef MS_JOB_YAML_H
#define MS_JOB_YAML_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_YAML_FILE_MAX                                                               \
    ((size_t)16 << 20) /* bytes; of texts, also where aliases stand */
#define MS_YAML_VALUES_MAX ((size_t)1 << 19) /* each as often as aliases stand for it */
#define MS_YAML_LEVELS_MAX 64                /* more than any reader goes down */

struct ms_yaml;

/* A value in a document; both are borrowed from it. */
struct ms_yaml_at {
    const struct ms_yaml *yaml;
    int node;
};

/* Where a value stands, for errors after the document is gone; line 0: nowhere. */
struct ms_yaml_mark {
    size_t line, column;
};

/* NULL: it is no YAML, or aliases make it larger than the limits above (-EINVAL), or -ENOMEM.
 * `name` is for errors. */
struct ms_yaml *
ms_yaml_read(const char *name, const char *text, size_t len, struct ms_error *err);
void ms_yaml_cleanup(struct ms_yaml **y); /* NULL is nothing */

struct ms_yaml_at ms_yaml_root(const struct ms_yaml *y);

struct ms_yaml_mark ms_yaml_mark(struct ms_yaml_at at);

/* "FILE:LINE:COLUMN: " and what is wrong with this value; returns -EINVAL. */
int ms_yaml_fail(struct ms_yaml_at at, struct ms_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Something has failed because of this value (rc < 0), and said why in `err`: where it stands
 * comes before that. Returns rc. */
int ms_yaml_blame(struct ms_yaml_at at, int rc, struct ms_error *err);

bool ms_yaml_is_null(struct ms_yaml_at at); /* nothing, ~ or null */
bool ms_yaml_is_map(struct ms_yaml_at at);
bool ms_yaml_is_list(struct ms_yaml_at at);
bool ms_yaml_is_plain(struct ms_yaml_at at); /* a scalar without quotes */

/* Elements of a list, or entries of a map; 0 of anything else. */
size_t ms_yaml_count(struct ms_yaml_at at);
struct ms_yaml_at ms_yaml_item(struct ms_yaml_at list, size_t i);
struct ms_yaml_at ms_yaml_key(struct ms_yaml_at map, size_t i);
struct ms_yaml_at ms_yaml_value(struct ms_yaml_at map, size_t i);

/* The text of a scalar as it stands there, as long as the document; NULL: it is none. */
const char *ms_yaml_text(struct ms_yaml_at at);

/* ---- maps by a table --------------------------------------------------------------- */

/* Read a value into *out. 0, or a negative errno. */
typedef int ms_yaml_reader(struct ms_yaml_at at, void *out, struct ms_error *err);

/* One key of a map. `read` writes to out + offset. */
struct ms_yaml_field {
    const char *key;
    ms_yaml_reader *read;
    size_t offset;
    bool is_needed;
};

/* `what` names the map in errors ("a node"); the table ends with a NULL key. */
int ms_yaml_map(struct ms_yaml_at at,
                const char *what,
                const struct ms_yaml_field *fields,
                void *out,
                struct ms_error *err);

/* Readers for the tables, and what *out is. */
ms_yaml_reader ms_yaml_to_text;   /* char *, owned */
ms_yaml_reader ms_yaml_to_count;  /* uint32_t */
ms_yaml_reader ms_yaml_to_amount; /* uint64_t */
ms_yaml_reader ms_yaml_to_milli;  /* uint64_t */
ms_yaml_reader ms_yaml_to_size;   /* uint64_t */
ms_yaml_reader ms_yaml_to_bool;   /* bool */
ms_yaml_reader ms_yaml_to_at;     /* struct ms_yaml_at: to be read later */

#endif
