/* label.h - labels of nodes, and conditions on them
 *
 * A label is a name with a value. A condition is written as Ray's users know it:
 *
 *   v            the label has this value
 *   !v           it has another value, or is not there
 *   in(a,b)      it has one of these values
 *   !in(a,b)     it has none of these values, or is not there
 *
 * Names and values are 1 to MS_LABEL_MAX characters of [A-Za-z0-9_./:-]. Pure.
 */
#ifndef MS_RESOURCE_LABEL_H
#define MS_RESOURCE_LABEL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define MS_LABEL_MAX      ((size_t)128)
#define MS_LABELS_MAX     ((size_t)64) /* of one node, or in one selector */
#define MS_CONDITIONS_MAX ((size_t)64) /* values in one condition */

/* The value of a label, or NULL; labels are texts "name=value". */
const char *ms_label_find(char *const *labels, size_t count, const char *name);

int ms_label_check(const char *text, const char *what, struct ms_error *err);

/* A name that a node gets, beside `count` others: of a "label" or of a "resource". -EINVAL,
 * -EEXIST (it has it already), -E2BIG. */
int ms_label_check_new(const char *node,
                       const char *noun,
                       const char *name,
                       bool is_taken,
                       size_t count,
                       struct ms_error *err);

/* A text that becomes a label of a node, beside those that it has. As ms_label_check_new. */
int ms_label_check_text(const char *node,
                        const char *text,
                        char *const *labels,
                        size_t count,
                        struct ms_error *err);

/* A condition on one label. */
struct ms_condition {
    char *name;
    char *text; /* as above, without blanks; a list has at least two values */
};

/* All of its conditions hold. */
struct ms_selector {
    struct ms_condition *conditions;
    size_t count;
};

void ms_selector_finish(struct ms_selector *s);

/* 0; -EINVAL with the reason; -E2BIG beyond a limit above; -ENOMEM. Nothing has changed
 * after a failure. */
int ms_selector_add(struct ms_selector *s,
                    const char *name,
                    const char *condition,
                    struct ms_error *err);

/* Its values, one after another: begin with *at = NULL; false at the end. */
bool ms_condition_next(const struct ms_condition *c, const char **at, size_t *len);

/* The first condition that does not hold; NULL if all do. */
const struct ms_condition *
ms_selector_misfit(const struct ms_selector *s, char *const *labels, size_t count);

bool ms_selector_is_equal(const struct ms_selector *a, const struct ms_selector *b);

#endif
