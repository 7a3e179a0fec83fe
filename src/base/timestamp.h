/* timestamp.h - times of the wall clock, as logs have them and as people write them
 *
 * Before each line of a log is when it was read, in UTC: "2026-11-18T05:13:30.123456Z ".
 */
#ifndef MS_BASE_TIMESTAMP_H
#define MS_BASE_TIMESTAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_TIMESTAMP_LEN = 27 };

struct ms_timestamp {
    int64_t second;                  /* that `text` is of; text[0] is 0: none */
    char text[MS_TIMESTAMP_LEN + 2]; /* with a space behind it */
};

/* All zero is fine to begin with. Cheap while the second stays the same. */
void ms_timestamp_set(struct ms_timestamp *t, int64_t wall_ns);

/* Does the text begin with a timestamp and a space? Then its time. */
bool ms_timestamp_read(const char *text, size_t len, int64_t *wall_ns);

/* "90s", "10m", "1h30m", "2d". 0 or -EINVAL. */
int ms_duration_parse(const char *text, int64_t *ns);

/* A duration: that long before `now_ns`. Or a date, perhaps with a time: "2026-11-18",
 * "2026-11-18T05:00", "2026-11-18 05:00:30.5", of this machine's zone unless "Z" or
 * "+02:00" is behind the time. 0 or -EINVAL. */
int ms_since_parse(const char *text, int64_t now_ns, int64_t *wall_ns);

#endif
