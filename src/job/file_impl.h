/* file_impl.h - readers of the keys of a job: file_nodes.c, file_roles.c, file_bundles.c, file_workers.c,
 * file_policy.c, file_generation.c; private to job/ */
#ifndef MS_JOB_FILE_IMPL_H
#define MS_JOB_FILE_IMPL_H

#include "job/file.h"
#include "job/yaml.h"

/* *out is the job. */
ms_yaml_reader ms_job_read_generation;
ms_yaml_reader ms_job_read_nodes;
ms_yaml_reader ms_job_read_roles;
void ms_job_role_finish(struct ms_job_role *r);

/* file_bundles.c: struct ms_job_role; enum ms_strategy. */
ms_yaml_reader ms_job_read_bundle;
ms_yaml_reader ms_job_read_strategy;
/* When all roles were read: its ranks stand in the bundles of another one, which may be. */
int ms_job_share_bundles(struct ms_job *job,
                         struct ms_job_role *r,
                         struct ms_yaml_at at,
                         struct ms_error *err);

/* file_policy.c. A range: struct ms_job_range; a policy's parts: struct ms_job_policy. */
ms_yaml_reader ms_job_read_range;
ms_yaml_reader ms_job_read_restart;
ms_yaml_reader ms_job_read_budget;
ms_yaml_reader ms_job_read_own_budget; /* of the job itself */
ms_yaml_reader ms_job_read_hang;
ms_yaml_reader ms_job_read_on_hang;
ms_yaml_reader ms_job_read_heartbeat;
ms_yaml_reader ms_job_read_critical;
ms_yaml_reader ms_job_read_growth;
ms_yaml_reader ms_job_read_on;       /* struct ms_job */
ms_yaml_reader ms_job_read_priority; /* int32_t */
ms_yaml_reader ms_job_read_command;  /* char **, NULL-terminated */
ms_yaml_reader ms_job_read_check;    /* struct ms_job_check */
ms_yaml_reader ms_job_read_rules;    /* struct ms_job_rules */
ms_yaml_reader ms_job_read_refused;  /* what needs containers */
/* Nothing is said. */
void ms_job_policy_init(struct ms_job_policy *p);
void ms_job_rules_init(struct ms_job_rules *r);
void ms_job_words_free(char **words);

/* Of a role: what its workers are. Checked alone: *out means nothing. */
ms_yaml_reader ms_job_read_class;
ms_yaml_reader ms_job_read_list;
ms_yaml_reader ms_job_read_words;
ms_yaml_reader ms_job_read_named;
ms_yaml_reader ms_job_read_variables;
ms_yaml_reader ms_job_read_start;
ms_yaml_reader ms_job_read_visible;
ms_yaml_reader ms_job_read_some; /* a number above 0 */
ms_yaml_reader ms_job_read_flag;
/* Whether so many ranks have such a mesh. */
int ms_job_check_mesh(struct ms_yaml_at at, uint32_t world_size, struct ms_error *err);

#endif
