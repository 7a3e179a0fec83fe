/* file.h - a job's description: its nodes, its roles and its driver
 *
 *   nodes:
 *     - {name: "n[0-3]", cpus: 64, memory: 512GiB, gpus: 8, gpu_memory: 80GiB,
 *        labels: {rack: r1}}
 *   roles:
 *     actor_train: {device_mapping: "0-15", num_gpus_per_worker: 1}
 *     rollout: {world_size: 4, bundle: {GPU: 2, CPU: 8}, strategy: SPREAD}
 *     reward: {world_size: 8, num_cpus: 1, worker_cls: workers.Reward}
 *
 *   name: first
 *   driver: [python, train.py]
 *   env: {STEPS: "100"}
 *   timeout: 300
 *
 * doc/resources.md has the keys of nodes and roles, doc/orchestrators.md those of
 * `muster run`, doc/jobs.md the others, doc/job.schema.json all of them. Errors begin with
 * file, line and column. The description owns all that is in it.
 */
#ifndef MS_JOB_FILE_H
#define MS_JOB_FILE_H

#include "base/error.h"
#include "base/limits.h"
#include "job/core/spec.h"
#include "job/yaml.h"
#include "proto/muster.pb-c.h"
#include "resource/place.h"

#include <jansson.h>
#include <stdbool.h>

#define MS_JOB_NODES_MAX   ((size_t)1 << 20)
#define MS_JOB_ROLES_MAX   ((size_t)4096)
#define MS_JOB_WORDS_MAX   ((size_t)4096) /* of the driver's command, and of its env */
#define MS_JOB_DRIVER_NAME "driver"       /* no role of a submitted job has it */
/* Of a submitted job: its driver is the cluster NAME.driver. */
#define MS_JOB_NAME_LEN_MAX     (MS_NAME_MAX - sizeof MS_JOB_DRIVER_NAME)
#define MS_JOB_BUDGET_UNLIMITED UINT32_MAX
#define MS_JOB_BUDGET_UNSET     (UINT32_MAX - 1) /* the default of the cause */

/* After so long a process that is there and silent counts as ended. */
#define MS_JOB_HEARTBEAT_S 600u

/* "min:max:unit", or one number for both. All 0: not said. */
struct ms_job_range {
    uint32_t min, max, unit;
};

/* What is done when something ends. */
struct ms_job_policy {
    bool has_restart;
    enum ms_job_restart restart;
    uint32_t budget[MS_JOB_BUDGETS];
    uint32_t hang_s; /* 0: never */
    enum ms_job_on_hang on_hang;
    uint32_t heartbeat_s; /* 0: MS_JOB_HEARTBEAT_S */
    bool is_not_critical;
    uint32_t memory_growth_milli; /* 0: not said */
};

struct ms_job_role {
    char *name;
    struct ms_yaml_mark at; /* its name */
    uint32_t world_size;    /* 0: not said; of a range: its least */
    struct ms_job_range size;
    char *worker_cls; /* NULL: not said */
    char **command;   /* NULL-terminated; NULL: not said */
    struct ms_job_policy policy;
    /* by device mapping, or without devices */
    uint32_t *devices;
    size_t device_count;
    uint32_t num_gpus_per_worker;
    uint64_t cpu_milli, memory, gpu_memory;
    /* by bundles, one a rank */
    bool has_bundle;
    struct ms_bundle bundle; /* without its kind */
    char *kind;              /* of its devices; NULL: any */
    uint64_t gpu_milli;      /* whole devices, or a share of one */
    struct ms_selector selector;
    enum ms_strategy strategy;
    char *same; /* a label; NULL: none */
    char *
        shares; /* the name of the role in whose bundles its ranks stand; NULL: its own */
    const struct ms_job_role *place; /* that role, or itself; NULL: not in bundles */
    struct ms_yaml_at mesh;          /* while the file is read */
    json_t *told; /* all of it as the file has it, also what its workers are */
};

/* The check of nodes, before the job and after a failure. */
struct ms_job_check {
    bool is_on;
    char **command;     /* NULL-terminated; NULL: Muster's own */
    uint32_t timeout_s; /* of each of its two rounds */
    uint64_t
        slow_milli;   /* a node is slow beyond so many times the median; 0: not said */
    bool avoids_slow; /* as if it had failed */
};

/* How a job decides, beyond its budgets; MS_JOB_BUDGET_UNSET, or UINT64_MAX: not said. */
struct ms_job_rules {
    uint64_t backoff_milli, backoff_max_milli; /* seconds */
    uint64_t stable_milli;
    uint32_t same_error, node_failures, role_restarts;
};

/* Nodes of one entry with `count`. */
struct ms_job_node_range {
    size_t first; /* in ms_job.nodes */
    struct ms_job_range count;
};

struct ms_job {
    bool has_nodes; /* the key is there */
    struct ms_job_node_range *node_ranges;
    size_t node_range_count;
    Muster__NodeShape **nodes;
    char **netns; /* of each node: the network namespace it is in; NULL: ours */
    size_t node_count, node_capacity;
    struct ms_job_role *roles; /* in the order of the file */
    size_t role_count;
    char *name;         /* NULL: not said */
    char **driver;      /* its command, NULL-terminated; NULL: not said */
    char **env;         /* "NAME=value", NULL-terminated; NULL: none */
    uint32_t timeout_s; /* for the machines to be there; 0: not said */
    char *on;           /* the orchestrator; NULL: not said */
    char *checkpoint;   /* a folder; NULL: none */
    int32_t priority;
    struct ms_job_policy driver_policy, policy; /* of the driver; of the job */
    struct ms_job_rules rules;
    struct ms_job_check check;
    json_t *generation; /* as the file has it; NULL: not said */
    char *source;       /* the name of the file, in errors */
    struct ms_yaml_mark name_at, on_at, nodes_at;
};

/* 0, or -EINVAL, -E2BIG, -ENOMEM; nothing is to be freed then. `name` is for errors. */
int ms_job_read(struct ms_job *job,
                const char *name,
                const char *text,
                size_t len,
                struct ms_error *err);
/* What can be read of one that is refused: its nodes, its orchestrator and its name, each of
 * them if it is right. */
void ms_job_read_rest(struct ms_job *job,
                      const char *name,
                      const char *text,
                      size_t len);
void ms_job_finish(struct ms_job *job);

/* How many ranks the role has at least: by its size, or by its devices. */
uint32_t ms_job_role_ranks(const struct ms_job_role *r);
/* How many bundles the group of a role has at least; 0: as many as it has ranks. */
uint32_t ms_job_role_bundles(const struct ms_job_role *r);
/* The group of its bundles as a cluster brings it along, under the name of the role whose
 * bundles they are with `before` before it, each with so many bytes. To be freed with
 * muster__place_group__free_unpacked; NULL: out of memory. */
Muster__PlaceGroup *
ms_job_role_group(const struct ms_job_role *r, const char *before, uint64_t memory);
/* The controller creates it: it has a class or a command. */
bool ms_job_role_is_ours(const struct ms_job_role *r);
/* What an orchestrator cannot do of it: 0, or -EINVAL with the reason. */
int ms_job_check_on(const struct ms_job *job, const char *on, struct ms_error *err);

/* What a controller refuses, whichever head it is, of a job with this name on this
 * orchestrator: 0, or -EINVAL with the reason and where it stands. */
int ms_job_check_submit(const struct ms_job *job,
                        const char *name,
                        const char *on,
                        struct ms_error *err);

/* What the controller needs to know of it (job/core/spec.h): the roles that it creates, in
 * the order of the file. 0, -EINVAL with the reason, -ENOMEM. */
int ms_job_make_spec(const struct ms_job *job,
                     struct ms_job_spec *out,
                     struct ms_error *err);
void ms_job_made_spec_finish(struct ms_job_spec *s);

/* What drivers of the job are told: {"file": NAME, "roles": {NAME: ROLE}, "generation":
 * SETTINGS}, with the keys of the file; without the last where the file has none. NULL: out of
 * memory. */
json_t *ms_job_roles_json(const struct ms_job *job, const char *file);

#endif
