/* yaml_json.h - a value of a YAML file as JSON
 *
 * Scalars without quotes that look like one are null, true, false or a number; all others
 * are text. Keys are text.
 */
#ifndef MS_JOB_YAML_JSON_H
#define MS_JOB_YAML_JSON_H

#include "job/yaml.h"

#include <jansson.h>

#define MS_YAML_DEPTH_MAX 32 /* of lists and maps in each other */

/* NULL with the reason. */
json_t *ms_yaml_json(struct ms_yaml_at at, struct ms_error *err);

#endif
