/* buf.h - bytes and arrays that grow
 *
 * data[0..len) is valid; the buffer owns it. Zeroed memory is an empty buffer, and so is a
 * finished one. Taking the data leaves an empty buffer.
 */
#ifndef MS_BASE_BUF_H
#define MS_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct ms_buf {
    uint8_t *data;
    size_t len, capacity;
    int failed; /* 0, or why a printf has failed: those that follow do too */
};

void ms_buf_init(struct ms_buf *b);
void ms_buf_finish(struct ms_buf *b);

/* Make room for `more` bytes behind len. 0 or -ENOMEM. */
int ms_buf_reserve(struct ms_buf *b, size_t more);
int ms_buf_append(struct ms_buf *b, const void *data, size_t len);

/* Append formatted text, without its NUL. A failure is remembered, so that a text of many
 * parts needs one check at its end. 0, or a negative errno, which is `failed` too. */
int ms_buf_printf(struct ms_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Drop the first n bytes. */
void ms_buf_consume(struct ms_buf *b, size_t n);

/* The text so far as a NUL-terminated string (the NUL is not counted), or NULL when out
 * of memory, also if an earlier printf was. Borrowed until the next change. */
const char *ms_buf_str(struct ms_buf *b);

/* A malloc'd copy of some bytes, also of none; NULL: out of memory. */
uint8_t *ms_bytes_copy(const void *bytes, size_t len);

/* A text of `len` bytes, with a NUL. 0, or -ENAMETOOLONG: it does not fit. */
int ms_text_copy(char *out, size_t room, const char *text, size_t len);

/* Make room for `count` elements of `size` bytes in a malloc'd array that has *room; what is
 * new is zeroed. `array` is the address of its pointer, which may be NULL. 0, or -ENOMEM:
 * nothing has changed. */
int ms_array_reserve(void *array, size_t *room, size_t count, size_t size);

#endif
