/* file_test.c - tests of file.h: a job's description */
#include "base/clock.h"
#include "job/file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ms_job read_job(const char *text)
{
    struct ms_error err = {0};
    struct ms_job job;

    if (ms_job_read(&job, "x.yaml", text, strlen(text), &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

static void test_nodes(void **state)
{
    struct ms_job job = read_job(
        "nodes:\n"
        "  - {name: 'n[0-3]', cpus: 64, memory: 512GiB, gpus: 8,\n"
        "     gpu_memory: 80GiB, gpus_per_domain: 4, labels: {rack: r1, row: 7}}\n"
        "  - name: odd\n"
        "    netns: blue\n"
        "    devices:\n"
        "      - {kind: npu, count: 2, memory: 64GiB}\n"
        "      - {kind: fpga, count: 1, domain: 5}\n"
        "    resources: {license: 4}\n");

    (void)state;
    assert_true(job.has_nodes);
    assert_int_equal(job.node_count, 5);
    assert_string_equal(job.nodes[3]->name, "n3");
    assert_int_equal(job.nodes[3]->cpus, 64);
    assert_int_equal(job.nodes[3]->memory, UINT64_C(512) << 30);
    assert_int_equal(job.nodes[3]->n_devices, 8);
    assert_int_equal(job.nodes[3]->devices[7]->memory, UINT64_C(80) << 30);
    assert_int_equal(job.nodes[3]->devices[7]->domain, 1);
    assert_string_equal(job.nodes[3]->labels[1], "row=7");
    assert_int_equal(job.nodes[4]->cpus, -1); /* to be looked for */
    assert_null(job.netns[3]);
    assert_string_equal(job.netns[4], "blue");
    assert_int_equal(job.nodes[4]->n_devices, 3);
    assert_string_equal(job.nodes[4]->devices[1]->kind, "npu");
    assert_int_equal(job.nodes[4]->devices[2]->domain, 5);
    assert_int_equal(job.nodes[4]->resources[0]->amount, 4);
    assert_int_equal(job.role_count, 0);
    ms_job_finish(&job);
}

static void test_driver(void **state)
{
    struct ms_job job = read_job("name: first\n"
                                 "driver: [python, -c, \"print(1)\", 7]\n"
                                 "env: {STEPS: \"100\", EMPTY: \"\", N: 5}\n"
                                 "timeout: 300\n");

    (void)state;
    assert_string_equal(job.name, "first");
    assert_string_equal(job.driver[0], "python");
    assert_string_equal(job.driver[3], "7");
    assert_null(job.driver[4]);
    assert_int_equal(job.timeout_s, 300);
    assert_string_equal(job.env[0], "STEPS=100");
    assert_string_equal(job.env[1], "EMPTY=");
    assert_string_equal(job.env[2], "N=5");
    assert_null(job.env[3]);
    ms_job_finish(&job);
    job = read_job("roles: {}\n");
    assert_null(job.name);
    assert_null(job.driver);
    assert_null(job.env);
    ms_job_finish(&job);
}

static void test_roles(void **state)
{
    struct ms_job job =
        read_job("roles:\n"
                 "  train: {device_mapping: \"0-3,8\", num_gpus_per_worker: 1}\n"
                 "  infer: {device_mapping: [4, 5], num_gpus_per_worker: 2,\n"
                 "          gpu_memory: 16GiB, memory: 1.5GiB}\n"
                 "  reward: {world_size: 8, num_cpus: 0.5}\n"
                 "  rollout:\n"
                 "    world_size: 4\n"
                 "    strategy: STRICT_SPREAD\n"
                 "    same: rack\n"
                 "    bundle: {GPU: 2, CPU: 8, one_domain: true, kind: gpu,\n"
                 "             resources: {license: 1}, labels: {zone: 'in(a,b)'}}\n");

    (void)state;
    assert_false(job.has_nodes);
    assert_int_equal(job.role_count, 4);
    assert_string_equal(job.roles[0].name, "train");
    assert_int_equal(job.roles[0].device_count, 5);
    assert_int_equal(job.roles[0].devices[4], 8);
    assert_int_equal(job.roles[1].device_count, 2);
    assert_int_equal(job.roles[1].num_gpus_per_worker, 2);
    assert_int_equal(job.roles[1].memory, UINT64_C(1536) << 20);
    assert_int_equal(job.roles[2].world_size, 8);
    assert_int_equal(job.roles[2].cpu_milli, 500);
    assert_int_equal(job.roles[2].num_gpus_per_worker, 0);
    assert_true(job.roles[3].has_bundle);
    assert_int_equal(job.roles[3].strategy, MS_STRATEGY_STRICT_SPREAD);
    assert_string_equal(job.roles[3].same, "rack");
    assert_int_equal(job.roles[3].gpu_milli, 2000);
    assert_int_equal(job.roles[3].bundle.cpu_milli, 8000);
    assert_true(job.roles[3].bundle.one_domain);
    assert_int_equal(job.roles[3].bundle.extra_count, 1);
    assert_int_equal(job.roles[3].bundle.selector->count, 1);
    ms_job_finish(&job);
}

static void test_policies(void **state)
{
    struct ms_job job = read_job(
        "name: grpo\n"
        "on: local\n"
        "nodes: [{name: n, count: \"2:4:2\", gpus: 4}]\n"
        "roles:\n"
        "  train: {worker_cls: w.Train, device_mapping: \"0-3\", restart: role}\n"
        "  infer: {worker_cls: w.Infer, world_size: \"2:6:2\", hang: 60,\n"
        "          budget: {failed: 5, preempted: unlimited}, critical: false,\n"
        "          memory: 1GiB, memory_growth: 1.5}\n"
        "  side: {command: [sleep, \"3\"], world_size: 2}\n"
        "  later: {world_size: 3}\n"
        "driver: {command: [python, train.py], budget: {failed: 2}, hang: 9}\n"
        "checkpoint: ./ckpt\n"
        "check: {command: [nccl-test, \"8\"]}\n"
        "priority: -3\n"
        "generation: {slots: 64}\n");

    (void)state;
    assert_string_equal(job.on, "local");
    assert_string_equal(job.checkpoint, "./ckpt");
    assert_int_equal(job.priority, -3);
    assert_true(job.check.is_on);
    assert_string_equal(job.check.command[1], "8");
    assert_int_equal(job.check.timeout_s, 300);
    assert_int_equal(job.node_count, 4);
    assert_string_equal(job.nodes[3]->name, "n3");
    assert_int_equal(job.node_range_count, 1);
    assert_int_equal(job.node_ranges[0].count.min, 2);
    assert_true(job.roles[0].policy.has_restart);
    assert_int_equal(job.roles[0].policy.restart, MS_JOB_RESTART_ROLE);
    assert_int_equal(job.roles[1].world_size, 2);
    assert_int_equal(job.roles[1].size.max, 6);
    assert_int_equal(job.roles[1].size.unit, 2);
    assert_int_equal(job.roles[1].policy.budget[MS_JOB_APPLICATION], 5);
    assert_int_equal(job.roles[1].policy.budget[MS_JOB_PREEMPTED],
                     MS_JOB_BUDGET_UNLIMITED);
    assert_int_equal(job.roles[1].policy.budget[MS_JOB_HANG], MS_JOB_BUDGET_UNSET);
    assert_true(job.roles[1].policy.is_not_critical);
    assert_int_equal(job.roles[1].policy.hang_s, 60);
    assert_int_equal(job.roles[1].policy.memory_growth_milli, 1500);
    assert_string_equal(job.roles[2].command[1], "3");
    assert_true(ms_job_role_is_ours(&job.roles[2]));
    assert_false(ms_job_role_is_ours(&job.roles[3]));
    assert_string_equal(job.driver[1], "train.py");
    assert_int_equal(job.driver_policy.budget[MS_JOB_APPLICATION], 2);
    assert_int_equal(job.driver_policy.hang_s, 9);
    assert_int_equal(json_integer_value(json_object_get(job.generation, "slots")), 64);
    ms_job_finish(&job);
}

static const struct {
    const char *text, *error;
} wrong[] = {
    {"", "x.yaml:1:1: a job must be a map"},
    {"[1]", "x.yaml:1:1: a job must be a map"},
    {"nodes: [\n", "x.yaml:2:1: did not find"},
    {"nodse: []", "x.yaml:1:1: a job has no key 'nodse'; is 'nodes' meant?"},
    {"name: a b", "x.yaml:1:7: "},
    {"nodes: [{name: a, netns: ../b}]", "x.yaml:1:26: network namespace"},
    {"driver: python", "x.yaml:1:9: 'driver' must be a list of words"},
    {"driver: []", "x.yaml:1:9: 'driver' must be a list of words"},
    {"driver: [a, [b]]", "x.yaml:1:13: a word of a command must be a text"},
    {"driver: {budget: {failed: 1}}", "x.yaml:1:9: the driver needs 'command'"},
    {"driver: {comand: [a]}",
     "x.yaml:1:10: the driver has no key 'comand'; is 'command'"},
    {"on: lcoal",
     "x.yaml:1:5: 'on': 'lcoal' is none of local, ray, sim, kubernetes, "
     "slurm; did you mean 'local'?"},
    {"priority: high", "x.yaml:1:11: 'priority' must be a whole number"},
    {"priority: \"3\"", "x.yaml:1:11: 'priority' must be a whole number"},
    {"budget: {failed: 3, preempted: unlimited}",
     "x.yaml:1:21: 'budget' of a job has no key"},
    {"budget: 3", "x.yaml:1:9: 'budget' of a job must be a map"},
    {"policy: {backof: 1}", "x.yaml:1:10: 'policy' has no key 'backof'"},
    {"policy: {same_error: 0}", "x.yaml:1:22: more than 0 is wanted here"},
    {"policy: {stable: 86401}", "x.yaml:1:18: at most 86400 seconds"},
    {"policy: {backoff: 9, backoff_max: 8}", "x.yaml:1:9: 'backoff' is more than"},
    {"check: {slower: 1}", "x.yaml:1:17: 'slower' must be 1.1 to 100"},
    {"check: {slow: avoided}", "x.yaml:1:15: 'slow': 'avoided' is none of use, avoid"},
    {"check: maybe", "x.yaml:1:8: 'check' must be true, false, or a map"},
    {"check: {timeout: 0}", "x.yaml:1:18: 'timeout' must be 1 to 86400 seconds"},
    {"check: {comand: [a]}", "x.yaml:1:9: 'check' has no key 'comand'; is 'command'"},
    {"check: {command: a}", "x.yaml:1:18: a list of words is wanted here"},
    {"generation: [a]", "x.yaml:1:13: 'generation' must be a map"},
    {"generation: {slot: 1}",
     "x.yaml:1:14: 'generation' has no key 'slot'; is 'slots' meant?"},
    {"generation: {slots: 0}", "x.yaml:1:21: more than 0 is wanted here"},
    {"generation: {silence: long}", "x.yaml:1:23: a number is wanted here"},
    {"generation: {max_bias: 2}", "x.yaml:1:24: above 0 and at most 1 is wanted here"},
    {"generation: {policy: lifo}",
     "x.yaml:1:22: 'policy' must be auto, longest or fifo"},
    {"image: a", "x.yaml:1:8: images and volumes are for orchestrators that run"},
    {"env: {MUSTER_ATTEMPT: x}", "x.yaml:1:7: MUSTER_ATTEMPT is set by"},
    {"nodes: [{name: n, count: \"4:2\"}]", "x.yaml:1:26: "},
    {"nodes: [{name: n, count: \"1:4:3\"}]", "x.yaml:1:26: "},
    {"nodes: [{name: \"n[0-2]\", count: \"1:4\"}]",
     "'name' has 3 nodes, and 'count' wants up to 4"},
    {"driver: [a]\nenv: [b]", "x.yaml:2:6: 'env' must be a map"},
    {"env: {a=b: c}", "x.yaml:1:7: no name of a variable"},
    {"env: {a: {b: c}}", "x.yaml:1:10: the value of a must be a text"},
    {"env: {MUSTER_ADDRESS: x}", "x.yaml:1:7: MUSTER_ADDRESS is set by"},
    {"nodes:\n", "x.yaml:1:7: 'nodes' has no value"},
    {"nodes: []", "x.yaml:1:8: 'nodes' has no nodes"},
    {"nodes: 3", "x.yaml:1:8: 'nodes' must be a list"},
    {"nodes: [3]", "x.yaml:1:9: a node must be a map"},
    {"nodes: [{cpus: 3}]", "x.yaml:1:9: a node needs 'name'"},
    {"nodes:\n  - {name: a, cpu: 3}",
     "x.yaml:2:15: a node has no key 'cpu'; is 'cpus'"},
    {"nodes:\n  - {name: a, xyzzy: 3}",
     "2:15: a node has no key 'xyzzy'; there are name,"},
    {"nodes:\n  - {name: a, cpus: many}",
     "2:21: a whole number is wanted here, not 'many'"},
    {"nodes:\n  - {name: a, cpus: \"3\"}",
     "2:21: a whole number is wanted here, not the text '3'"},
    {"nodes:\n  - {name: a, cpus: -3}", "2:21: a whole number"},
    {"nodes:\n  - {name: a, cpus: [3]}",
     "2:21: a whole number is wanted here, not a list"},
    {"nodes:\n  - {name: a, cpus: 9999999999}", "2:21: 9999999999 is more than"},
    {"nodes:\n  - {name: a, memory: lots}", "2:23: a size such as 80GiB"},
    {"nodes:\n  - {name: a, gpus: 5000}", "2:21: node '': more than 4096 devices"},
    {"nodes:\n  - {name: a, cpus: 1, cpus: 2}", "2:24: 'cpus' stands here twice"},
    {"nodes:\n  - {name: a b}", "2:12: node: character 2"},
    {"nodes:\n  - {name: 'n[1'}", "2:12: 'n[1': one pair of brackets"},
    {"nodes:\n  - {name: a}\n  - {name: a}", "2:3: two nodes are called 'a'"},
    {"nodes:\n  - {name: a, labels: [b]}", "2:23: 'labels' must be a map"},
    {"nodes:\n  - {name: a, labels: {b: c d}}", "2:24: value of a label"},
    {"nodes:\n  - {name: a, resources: {b: c}}", "2:30: a whole number"},
    {"nodes:\n  - {name: a, devices: {b: c}}", "2:24: 'devices' must be a list"},
    {"nodes:\n  - {name: a, devices: [{kind: b}]}",
     "2:25: an element of 'devices' needs 'count'"},
    {"roles: []", "x.yaml:1:8: 'roles' must be a map"},
    {"roles: {a b: {}}", "x.yaml:1:9: role: character 2"},
    {"roles: {a: {}, a: {}}", "x.yaml:1:16: there are two roles 'a'"},
    {"roles: {a: 3}", "x.yaml:1:12: role 'a' must be a map"},
    {"roles: {a: {device_map: 3}}",
     "1:13: role 'a' has no key 'device_map'; is 'device_mapping' meant?"},
    {"roles: {a: {device_mapping: 0-}}", "1:29: "},
    {"roles: {a: {device_mapping: [x]}}", "1:30: a whole number"},
    {"roles: {a: {device_mapping: {}}}", "1:29: a list of device ids"},
    {"roles: {a: {num_cpus: 1.2.3}}", "1:23: a number is wanted here"},
    {"roles: {a: {bundle: {GPU: 1.5}}}", "1:21: a bundle has whole devices"},
    {"roles: {a: {bundle: {GPU: 1}, num_cpus: 1}}",
     "1:12: role 'a': 'num_cpus' is for roles without 'bundle'"},
    {"roles: {a: {strategy: PACK}}",
     "1:12: role 'a': 'strategy' is for roles with a 'bundle'"},
    {"roles: {a: {bundle: {GPU: 1}, strategy: PACKED}}", "1:41: "},
    {"roles: {a: {bundle: {one_domain: yes}}}", "1:34: true or false is wanted"},
    {"roles: {a: {bundle: {labels: {z: in(}}}}", "1:34: "},
    {"roles: {a: {world_size: \"2:x\", worker_cls: m.C}}", "1:25: "},
    {"roles: {a: {world_size: \"2:4\"}}",
     "1:12: role 'a': \"min:max\" is for roles with 'worker_cls' or 'command'"},
    {"roles: {a: {world_size: \"2:4\", worker_cls: m.C, device_mapping: 0-3}}",
     "1:12: role 'a': a 'device_mapping' has one size"},
    {"roles: {a: {restart: rank}}",
     "1:12: role 'a': 'restart' is for roles with 'worker_cls' or 'command'"},
    {"roles: {a: {worker_cls: m.C, restart: ranks}}",
     "1:39: 'restart': 'ranks' is none of rank, role, job; did you mean 'rank'?"},
    {"roles: {a: {worker_cls: m.C, budget: {preemted: 3}}}",
     "1:39: a cause in 'budget': 'preemted' is none of failed"},
    {"roles: {a: {worker_cls: m.C, budget: {failed: often}}}",
     "1:47: a number or `unlimited` is wanted here"},
    {"roles: {a: {worker_cls: m.C, budget: {hang: 1, hang: 2}}}",
     "1:48: 'hang' stands twice"},
    {"roles: {a: {worker_cls: m.C, critical: maybe}}", "1:40: true or false is wanted"},
    {"roles: {a: {worker_cls: m.C, hang: 0}}", "1:36: 'hang' must be 1 to"},
    {"roles: {a: {worker_cls: m.C, hang: 1, on_hang: wait}}",
     "1:48: 'on_hang': 'wait' is none of restart, say"},
    {"roles: {a: {worker_cls: m.C, on_hang: say}}",
     "1:12: role 'a': 'on_hang' without 'hang'"},
    {"roles: {a: {worker_cls: m.C, heartbeat: 0}}", "1:41: 'heartbeat' must be 1 to"},
    {"roles: {a: {heartbeat: 9}}",
     "1:12: role 'a': 'heartbeat' is for roles with 'worker_cls' or 'command'"},
    {"roles: {a: {worker_cls: m.C, budget: {check_failed: 2}}}",
     "1:39: a cause in 'budget': 'check_failed' is none of failed, out_of_memory"},
    {"roles: {a: {worker_cls: m.C, memory_growth: 9}}",
     "1:45: 'memory_growth' must be"},
    {"roles: {a: {worker_cls: m.C, memory_growth: 2}}",
     "1:12: role 'a': 'memory_growth' without 'memory'"},
    {"roles: {a: {command: [x], args: [1], world_size: 2}}",
     "1:12: role 'a': 'args' is for workers with a class, and it has a 'command'"},
    {"roles: {a: {command: x}}", "1:22: a list of words is wanted here"},
    {"roles: {}\n---\nroles: {}", "x.yaml:3:1: a second document"},
    {"roles: {a: *b}", "x.yaml:1:12: found undefined alias"},
};

static void test_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct ms_error err = {0};
        struct ms_job job;
        int rc =
            ms_job_read(&job, "x.yaml", wrong[i].text, strlen(wrong[i].text), &err);

        if (rc >= 0 || !strstr(err.text, wrong[i].error))
            fail_msg("%s\ngave %d: %s\nnot: %s",
                     wrong[i].text,
                     rc,
                     err.text,
                     wrong[i].error);
    }
}

/* `muster run` may do it. */
static void test_what_submit_refuses(void **state)
{
    static const char long_name[] =
        "a23456789-123456789-123456789-123456789-123456789-12345678";
    static const struct {
        const char *text, *name, *on, *error; /* NULL: nothing */
    } cases[] = {
        {"driver: [a]", "j", "local", NULL},
        {"roles: {a: {worker_cls: m.A}}", "j", "sim", NULL},
        {"name: j", "j", "local", "x.yaml: it has no driver and no roles"},
        {"roles:\n  a: {}", "j", "local", "x.yaml:2:3: it has no driver, and no role"},
        {"driver: [a]\non: ray", "j", "ray", "x.yaml:2:5: on ray: it has no 'nodes'"},
        {"driver: [a]", "j", "ray", "x.yaml: on ray: it has no 'nodes'"},
        {"on: sim\ndriver: [a]", "j", "sim", "x.yaml:1:5: on sim: it has no role with"},
        {"driver: [a]", "j", "slurm", "on slurm: not built yet"},
        {"roles: {driver: {command: [a]}}",
         "j",
         "local",
         "x.yaml:1:9: role 'driver': that is the driver's name"},
        {"roles: {a: {}, one_role: {command: [a]}}",
         long_name + 1,
         "local",
         "x.yaml:1:16: job '23456789-"},
        {"driver: [a]\nnodes: [{name: one_node}]",
         long_name + 1,
         "local",
         "x.yaml:2:8: job '23456789-"},
        {"driver: [a]\nname: j", long_name + 1, "local", NULL},
        {"driver: [a]\nname: j", long_name, "local", "has more than 57 characters"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ms_job job = read_job(cases[i].text);
        struct ms_error err = {0};
        int rc = ms_job_check_submit(&job, cases[i].name, cases[i].on, &err);

        assert_int_equal(rc, cases[i].error ? -EINVAL : 0);
        if (cases[i].error && !strstr(err.text, cases[i].error))
            fail_msg("%s\nnot: %s", err.text, cases[i].error);
        ms_job_finish(&job);
    }
}

static void test_what_is_done_on_a_hang(void **state)
{
    struct ms_job job = read_job("roles:\n"
                                 "  a: {command: [a], hang: 5, on_hang: say}\n"
                                 "  b: {command: [a], hang: 5, on_hang: restart}\n"
                                 "  c: {command: [a], hang: 5}\n");
    struct ms_job_spec spec;

    (void)state;
    assert_int_equal(ms_job_make_spec(&job, &spec, NULL), 0);
    assert_int_equal(spec.roles[0].on_hang, MS_JOB_HANG_SAY);
    assert_int_equal(spec.roles[1].on_hang, MS_JOB_HANG_RESTART);
    assert_int_equal(spec.roles[2].on_hang, MS_JOB_HANG_RESTART);
    assert_null(json_object_get(job.roles[0].told, "on_hang"));
    ms_job_made_spec_finish(&spec);
    ms_job_finish(&job);
}

static void test_how_often_a_job_is_restarted(void **state)
{
    static const struct {
        const char *text;
        uint16_t restarts_max;
    } cases[] = {{"driver: [a]", 3},
                 {"driver: [a]\nbudget: {failed: 0}", 0},
                 {"driver: [a]\nbudget: {failed: unlimited}", MS_JOB_UNLIMITED}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ms_job job = read_job(cases[i].text);
        struct ms_job_spec spec;

        assert_int_equal(ms_job_make_spec(&job, &spec, NULL), 0);
        assert_int_equal(spec.job_restarts_max, cases[i].restarts_max);
        ms_job_made_spec_finish(&spec);
        ms_job_finish(&job);
    }
}

static void test_numbers_by_which_a_job_decides(void **state)
{
    struct ms_job job = read_job(
        "driver: [a]\ncheck: {slower: 1.5, slow: avoid}\nbudget: {check_failed: 7}\n"
        "policy: {backoff: 0.5, backoff_max: 120, stable: 5, same_error: unlimited,\n"
        "         node_failures: 9, role_restarts: 0}\n");
    struct ms_job_spec spec;

    (void)state;
    assert_int_equal(ms_job_make_spec(&job, &spec, NULL), 0);
    assert_int_equal(spec.backoff_ns, MS_NS_PER_S / 2);
    assert_int_equal(spec.backoff_max_ns, 120 * MS_NS_PER_S);
    assert_int_equal(spec.stable_ns, 5 * MS_NS_PER_S);
    assert_int_equal(spec.same_error_max, MS_JOB_UNLIMITED);
    assert_int_equal(spec.node_strikes_max, 9);
    assert_int_equal(spec.role_restarts_max, 0);
    assert_int_equal(spec.driver_budget[MS_JOB_CHECK_FAILED], 7);
    assert_int_equal(job.check.slow_milli, 1500);
    assert_true(job.check.avoids_slow);
    ms_job_made_spec_finish(&spec);
    ms_job_finish(&job);
}

/* The other one of a pair follows. */
static void test_a_backoff_beyond_the_default(void **state)
{
    static const struct {
        const char *text;
        int64_t first_ns, most_ns;
    } cases[] = {
        {"driver: [a]", MS_NS_PER_S, 60 * MS_NS_PER_S},
        {"driver: [a]\npolicy: {backoff: 90}", 90 * MS_NS_PER_S, 90 * MS_NS_PER_S},
        {"driver: [a]\npolicy: {backoff_max: 0}", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ms_job job = read_job(cases[i].text);
        struct ms_job_spec spec;

        assert_int_equal(ms_job_make_spec(&job, &spec, NULL), 0);
        assert_int_equal(spec.backoff_ns, cases[i].first_ns);
        assert_int_equal(spec.backoff_max_ns, cases[i].most_ns);
        ms_job_made_spec_finish(&spec);
        ms_job_finish(&job);
    }
}

static void test_drivers_are_told_of_roles(void **state)
{
    struct ms_job job =
        read_job("roles:\n"
                 "  a: {worker_cls: m.A, args: [1, -2.5, '3', true, ~, 1e999, 0x1],\n"
                 "      kwargs: {deep: {list: []}}, mesh: {tp: 2}, world_size: 4}\n"
                 "  b: {}\n"
                 "generation: {slots: 4, silence: 0.5, history: lengths}\n");
    json_t *told = ms_job_roles_json(&job, "x.yaml");
    char *text = json_dumps(told, JSON_COMPACT);

    (void)state;
    assert_string_equal(
        text,
        "{\"file\":\"x.yaml\",\"roles\":{\"a\":{\"worker_cls\":\"m.A\",\"args\":[1,-2."
        "5,"
        "\"3\",true,null,\"1e999\",\"0x1\"],\"kwargs\":{\"deep\":{\"list\":[]}},"
        "\"mesh\":{\"tp\":2},\"world_size\":4},\"b\":{}},"
        "\"generation\":{\"slots\":4,\"silence\":0.5,\"history\":\"lengths\"}}");
    free(text);
    json_decref(told);
    ms_job_finish(&job);
}

static void test_levels_of_arguments(void **state)
{
    char text[256] = "roles: {a: {args: ";
    struct ms_error err = {0};
    struct ms_job job;

    (void)state;
    memset(text + strlen(text), '[', 40);
    memset(text + strlen(text), ']', 40);
    strcat(text, "}}");
    assert_int_equal(ms_job_read(&job, "x.yaml", text, strlen(text), &err), -EINVAL);
    assert_non_null(strstr(err.text, "more than 32 levels"));
}

/* What aliases stand for counts as often as they stand there. */
static void test_aliases_are_counted(void **state)
{
    static const struct {
        const char *text, *why; /* NULL: it is read */
    } cases[] = {
        {"roles: {a: {args: [&a [1, 2], *a, *a]}}", NULL},
        {"roles:\n"
         "  a:\n"
         "    kwargs:\n"
         "      a: &a [x,x,x,x,x,x,x,x,x,x]\n"
         "      b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
         "      c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "      d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
         "      e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
         "      f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
         "      g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
         "more than 524288 values up to here, with what aliases repeat"},
        {"roles: {a: {args: &a [*a]}}", "more than 32 levels"},
        {"roles: {a: {args: &a [*a, *a]}}", "more than 524288 values"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].text;
        struct ms_error err = {0};
        struct ms_job job;
        int rc = ms_job_read(&job, "x.yaml", text, strlen(text), &err);

        assert_int_equal(rc, cases[i].why ? -EINVAL : 0);
        if (rc == 0)
            ms_job_finish(&job);
        else
            assert_non_null(strstr(err.text, cases[i].why));
    }
}

static void test_a_text_is_repeated_too_often(void **state)
{
    enum { LEN = 1 << 20, TIMES = 20 };
    char *text = malloc(LEN + 200);
    struct ms_error err = {0};
    struct ms_job job;
    size_t len;

    (void)state;
    assert_non_null(text);
    len = (size_t)sprintf(text, "roles: {a: {args: [&a ");
    memset(text + len, 'x', LEN);
    len += LEN;
    for (int i = 0; i < TIMES; i++)
        len += (size_t)sprintf(text + len, ", *a");
    len += (size_t)sprintf(text + len, "]}}");
    assert_int_equal(ms_job_read(&job, "x.yaml", text, len, &err), -EINVAL);
    assert_non_null(strstr(err.text, "x.yaml:1:20: more than 16777216 bytes of text"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_what_is_wrong),
        cmocka_unit_test(test_what_submit_refuses),
        cmocka_unit_test(test_what_is_done_on_a_hang),
        cmocka_unit_test(test_how_often_a_job_is_restarted),
        cmocka_unit_test(test_numbers_by_which_a_job_decides),
        cmocka_unit_test(test_a_backoff_beyond_the_default),
        cmocka_unit_test(test_drivers_are_told_of_roles),
        cmocka_unit_test(test_levels_of_arguments),
        cmocka_unit_test(test_aliases_are_counted),
        cmocka_unit_test(test_a_text_is_repeated_too_often),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
