/* commands.c - the table of commands */
#include "cli/cli.h"

#include <string.h>

#define OPT(id) MS_OPT(MS_OPT_##id)

#define EXITS_ASK   (1u << MS_EXIT_NOT_RUNNING | 1u << MS_EXIT_UNREACHABLE)
#define EXITS_FOUND (1u << MS_EXIT_NOT_FOUND)

/* Of every command that asks a head. */
#define ASK (OPT(SESSION) | OPT(HEAD) | OPT(SECRET_FILE) | OPT(TIMEOUT) | OPT(JSON))

/* Of the memory of nodes. */
#define STORE (OPT(STORE_LIMIT) | OPT(SPILL) | OPT(SPILL_LIMIT))

const struct ms_cli_command ms_cli_commands[] = {
    {
        .name = "status",
        .summary = "nodes, drivers, clusters and workers, and what each worker does",
        .text = "Shows the newest session that runs on this machine, and names the "
                "others. A session\nbegins with muster.init() in a driver and ends "
                "with it, or is that of `muster head`.\nOf many nodes or workers only "
                "the counts are shown, and those that are not well.\nA worker is "
                "starting, constructing, idle, busy with a METHOD, stopped (SIGSTOP or "
                "a debugger),\nsilent (it does not answer), or has exited: WHY. FOR is "
                "how long "
                "that has been so. QUEUED calls wait for\nit, CALLS have run. MEMORY "
                "is what is resident, DEV MEM what is in use on its devices, -\nwhere "
                "that cannot be asked.",
        .example = "muster status\n"
                   "muster status --head 10.0.0.1:7777 --secret-file secret --json",
        .options = ASK,
        .exits = EXITS_ASK,
        .run = ms_cmd_status,
    },
    {
        .name = "top",
        .operands = "[CLUSTER[/RANK]]",
        .operands_max = 1,
        .words = MS_WORDS_WORKERS,
        .summary = "what the workers do, on a screen that is drawn anew each second",
        .text = "The columns are those of `muster status`, with the processor time "
                "(100 is one processor) and\nthe calls that each worker has had since "
                "the screen before. First are workers that have failed or\ndo not "
                "answer, then those that construct, then those that are busy for "
                "longest. Keys: t this order,\nc by processor time, m by memory, r by "
                "calls a second, n by name, arrows and space to scroll,\nq or Ctrl-C "
                "to end. Without a terminal, with --once or --json it prints once.",
        .example = "muster top\nmuster top actor --once",
        .options = OPT(ONCE) | ASK,
        .exits = EXITS_ASK,
        .run = ms_cmd_top,
    },
    {
        .name = "list",
        .operands = "KIND",
        .operands_max = 1,
        .words = MS_WORDS_KINDS,
        .summary =
            "all nodes, clusters, workers, drivers, groups, jobs, objects or sessions",
        .text = "KIND is one of " MS_CLI_KINDS ".\nWith --json, an array. Sessions are "
                "those of this machine, also ended ones whose logs\nare kept. Objects "
                "are those of the nodes' stores, the largest first: at most 1000 of "
                "each node.",
        .example = "muster list workers\nmuster list nodes --json | jq '.[].name'",
        .options = ASK,
        .exits = EXITS_ASK,
        .run = ms_cmd_list,
    },
    {
        .name = "get",
        .operands = "THING",
        .operands_max = 1,
        .words = MS_WORDS_THINGS,
        .summary = "everything that is known of one node, cluster, worker, driver, "
                   "group or job",
        .text =
            "THING is " MS_CLI_THINGS ".\nOf a worker that has ended: how, and what "
            "it printed last.",
        .example = "muster get worker/actor/0\nmuster get node/gpu-7 --json",
        .options = ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_get,
    },
    {
        .name = "logs",
        .operands = "[CLUSTER[/RANK]]",
        .operands_max = 1,
        .words = MS_WORDS_WORKERS,
        .summary = "what the workers have printed, also of sessions that have ended",
        .text =
            "Without an operand, all workers. With a cluster, each of its workers, "
            "every line behind its\nCLUSTER/RANK. With a rank, that worker's output "
            "as it is. Lines come in the order of the\ntimes at which the nodes "
            "have read them. If nothing runs, the newest session that has ended;\n"
            "`muster list sessions` shows the others, --session names one. With "
            "--json, one object a\nline, with its time. With -n and --grep, the last "
            "lines that match. Of a daemon head the logs\nare read from its nodes. "
            "With --job, all that a submitted job has printed; -f ends with the job.",
        .example = "muster logs -f actor\nmuster logs actor/0 -n 100\n"
                   "muster logs --job grpo -f\n"
                   "muster logs --since 10m --grep 'loss|nan' --timestamps",
        .options = OPT(FOLLOW) | OPT(LINES) | OPT(SINCE) | OPT(GREP) | OPT(TIMESTAMPS) |
                   OPT(AGENT) | OPT(JOB) | ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_logs,
    },
    {
        .name = "stack",
        .operands = "[CLUSTER[/RANK]]",
        .operands_max = 1,
        .words = MS_WORDS_WORKERS,
        .summary = "where every thread of a worker is right now, in Python and in C",
        .text = "A worker answers while its engine computes or hangs. Give a cluster, "
                "one rank of it, or\n--all.",
        .example = "muster stack actor/0\nmuster stack --all --timeout 30",
        .options = OPT(ALL) | ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_stack,
    },
    {
        .name = "timeline",
        .operands = "[FILE]",
        .operands_max = 1,
        .words = MS_WORDS_FILES,
        .summary = "what happened when, as a trace that opens in Perfetto",
        .text = "Of the session that runs, else of the newest that has ended, or of a "
                "FILE that a driver has\nwritten. A driver records if it calls "
                "muster.timeline.start() or has MUSTER_TIMELINE=1 in its\nenvironment: "
                "every call to a worker, every generation request on its replica, and "
                "what the\nprogram itself notes. The trace is JSON in Chrome's format, "
                "for https://ui.perfetto.dev; without\n--output it is printed.",
        .example = "muster timeline -o trace.json\n"
                   "muster timeline --session 20261118-090330-17118 > trace.json",
        .options = OPT(OUTPUT) | OPT(SESSION) | OPT(JSON),
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_timeline,
    },
    {
        .name = "debug",
        .operands = "[CLUSTER/RANK]",
        .operands_max = 1,
        .words = MS_WORDS_WORKERS,
        .summary = "attach to a worker that waits at a breakpoint()",
        .text =
            "Without an operand, those that wait. The prompt is pdb's: `c` lets the "
            "call go on and leaves,\n`q` fails it with BdbQuit. Ctrl-D, and the loss "
            "of this command, leave the worker waiting: it\ncan be attached to again. "
            "Ctrl-C interrupts what the prompt runs, or stops the program where\nit "
            "is. Commands can be piped in. One at a time can attach to a worker.",
        .example = "muster debug\nmuster debug actor/0\n"
                   "echo 'p self.step\nc' | muster debug actor/0",
        .options = ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_debug,
    },
    {
        .name = "stop",
        .operands = "[cluster NAME | job NAME | session]",
        .operands_max = 2,
        .words = MS_WORDS_STOP,
        .summary = "end a cluster, all clusters, or everything",
        .text = "`job NAME` ends that job. `cluster NAME` ends that cluster, also one "
                "of another driver; its pending calls "
                "fail. --all ends\nall clusters. `session` ends all clusters and, if "
                "the head is a daemon, then its agents\nand itself; a driver of its "
                "own is not ended. Asks first if it runs on a terminal. When\nit "
                "returns, the processes are gone.",
        .example = "muster stop cluster actor\nmuster stop session --yes",
        .options = OPT(ALL) | OPT(YES) | OPT(GRACE) | OPT(REASON) | ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_stop,
    },
    {
        .name = "head",
        .summary = "the head of several machines: agents and drivers come to it",
        .text = "Runs until it gets SIGTERM or SIGINT, and then ends all workers and "
                "agents. Started again\nunder the same name after a crash it has the "
                "same secret and learns from agents and\ndrivers what runs: no worker "
                "is disturbed. It starts no workers itself; a machine that is\nto lend "
                "its devices runs `muster agent`. With --json what it says is one "
                "object a line.",
        .example = "muster head --listen 10.0.0.1:7777",
        .options = OPT(LISTEN) | OPT(NAME) | OPT(SECRET_FILE) | OPT(HTTP) |
                   OPT(OPEN_METRICS) | OPT(TLS) | OPT(LINK_GRACE) | OPT(HEAD_GRACE) |
                   STORE | OPT(JSON),
        .run = ms_cmd_head,
    },
    {
        .name = "run",
        .operands = "FILE",
        .operands_max = 1,
        .words = MS_WORDS_FILES,
        .summary =
            "run a job: have machines lent, run its driver on them, give all back",
        .text =
            "FILE is YAML, as for `muster plan`, with `driver` (the command, a list), "
            "`env`, `name` and `timeout`.\n`nodes` are what is lent, one agent on "
            "each; without them it is this machine. The driver\nruns here, with "
            "MUSTER_ADDRESS and MUSTER_SECRET_FILE set: muster.init() in it joins. "
            "Its\nexit code is that of this command (128 and the signal, if one ended "
            "it). SIGINT and\nSIGTERM end the driver. However it ends, everything is "
            "given back.\nWith --on local the nodes are described ones of this "
            "machine; one with `netns: NAME` is in\nthat network namespace, from where "
            "--listen must be reached. With --on ray head and\ndriver run in a job on "
            "the Ray cluster at --address, with this folder as it is here. With\n--on "
            "sim nothing is started: it shows how the reservation would go, in virtual "
            "time. What\nthe command says itself goes to stderr, with --json as one "
            "object a line (of --on sim:\nto stdout).",
        .example = "muster run train.yaml\n"
                   "muster run --on ray --address http://head:8265 train.yaml\n"
                   "muster run --on sim big.yaml --json | jq .at_ns",
        .options = OPT(ON) | OPT(ADDRESS) | OPT(LISTEN) | OPT(TIMEOUT) | OPT(JSON),
        .exits = 1u << MS_EXIT_NO_ROOM,
        .run = ms_cmd_run,
    },
    {
        .name = "check",
        .operands = "FILE",
        .operands_max = 1,
        .words = MS_WORDS_FILES,
        .summary = "is a job's file right, and do its roles fit on its nodes",
        .text = "Every key is looked at; what is wrong is said with line, column and "
                "the nearest key that\nthere is. Nothing is started. doc/jobs.md has "
                "all keys.",
        .example = "muster check job.yaml",
        .options = OPT(NAME) | OPT(ON) | OPT(JSON),
        .exits = 1u << MS_EXIT_NO_ROOM,
        .run = ms_cmd_check,
    },
    {
        .name = "submit",
        .operands = "FILE",
        .operands_max = 1,
        .words = MS_WORDS_FILES,
        .summary = "have a job hosted: it goes on when this terminal is closed",
        .text = "Prints the job's name and returns. The head of --head, --session or "
                "MUSTER_ADDRESS hosts it,\nor this user's daemon; where there is none "
                "one is started, called `jobs`, which is started\nagain when it is "
                "killed. The driver runs in this folder, with this environment. What "
                "happens to\nthe file afterwards changes nothing. On ray (--on, or "
                "`on` in the file) the head lives in a job\non the cluster at "
                "--address (else RAY_API_SERVER_ADDRESS), with this folder as it is "
                "here.",
        .example = "muster submit job.yaml\n"
                   "muster submit --on ray --address http://head:8265 job.yaml\n"
                   "muster wait grpo && echo done",
        .options = OPT(NAME) | OPT(ON) | OPT(ADDRESS) | ASK,
        .exits = EXITS_ASK | 1u << MS_EXIT_NO_ROOM,
        .run = ms_cmd_submit,
    },
    {
        .name = "wait",
        .operands = "JOB",
        .operands_max = 1,
        .summary = "until a job is over; its exit code is that of this command",
        .text = "With --timeout it waits so many seconds and then ends with exit code "
                "1. A head that is started\nagain meanwhile is waited for.",
        .example = "muster wait grpo",
        .options = ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_wait,
    },
    {
        .name = "events",
        .operands = "JOB",
        .operands_max = 1,
        .summary = "what happened to a job, and why",
        .text = "One line for each thing that happened and each decision, with its "
                "cause. With -f it goes on\nuntil the job is over. With --json one "
                "object a line.",
        .example = "muster events grpo\nmuster events -f grpo",
        .options = OPT(FOLLOW) | ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_events,
    },
    {
        .name = "suspend",
        .operands = "JOB",
        .operands_max = 1,
        .summary =
            "end a job's processes and give its machines back, until it is resumed",
        .options = OPT(REASON) | ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_suspend,
    },
    {
        .name = "resume",
        .operands = "JOB",
        .operands_max = 1,
        .summary = "start a job again that was suspended",
        .options = ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_resume,
    },
    {
        .name = "scale",
        .operands = "JOB ROLE=N",
        .operands_max = 2,
        .summary = "another number of ranks, within what the file allows",
        .example = "muster scale grpo actor_infer=4",
        .options = ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_scale,
    },
    {
        .name = "restart",
        .operands = "JOB[/ROLE[/RANK]]",
        .operands_max = 1,
        .summary = "new processes for a rank, a role, the driver (JOB/driver) or a job",
        .example = "muster restart grpo/actor_infer/1",
        .options = ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_restart,
    },
    {
        .name = "delete",
        .operands = "JOB",
        .operands_max = 1,
        .summary = "forget a job; one that runs is stopped first",
        .options = ASK,
        .exits = EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_delete,
    },
    {
        .name = "plan",
        .operands = "FILE",
        .operands_max = 1,
        .words = MS_WORDS_FILES,
        .summary = "where every rank of a job would go, without starting anything",
        .text =
            "FILE is YAML: `roles` (by name; device_mapping, num_gpus_per_worker, "
            "world_size, num_cpus,\nmemory, gpu_memory; or bundle, strategy, same) and "
            "`nodes` (a list; name, cpus, memory, gpus,\ngpu_memory, gpus_per_domain, "
            "kind, devices, resources, labels). Without `nodes` it is over\nthose of "
            "the head that runs, with what is held of them, or over this machine. What "
            "does not fit\nis said with a table of what each node has.",
        .example = "muster plan train.yaml\n"
                   "muster plan train.yaml --json | jq '.roles[].ranks[].node'",
        .options = ASK,
        .exits = EXITS_ASK | 1u << MS_EXIT_NO_ROOM,
        .run = ms_cmd_plan,
    },
    {
        .name = "doctor",
        .summary = "can this machine run Muster, and what would make it better",
        .text = "Each line is a check: ok, warn (it works, with what is said) or fail "
                "(exit code 1), and\nwhat to do.",
        .options = OPT(PYTHON) | OPT(JSON),
        .run = ms_cmd_doctor,
    },
    {
        .name = "version",
        .summary = "the version of this program and of its protocol",
        .options = OPT(JSON),
        .run = ms_cmd_version,
    },
    {
        .name = "help",
        .operands = "[COMMAND]",
        .operands_max = 1,
        .words = MS_WORDS_COMMANDS,
        .summary = "the commands, or one of them",
        .text = "With --format also as a manual page or in Markdown, and the scripts "
                "with which shells\ncomplete command lines.",
        .example = "muster help status\nsource <(muster help --format bash)",
        .options = OPT(FORMAT),
        .run = ms_cmd_help,
    },
    {
        .name = "agent",
        .summary = "lend this machine to a head on another one",
        .text =
            "Runs in the foreground until it is stopped (SIGTERM, Ctrl-C): then its "
            "workers end, and it\nwith them. If the head falls silent or ends it dials "
            "again and its workers go on, for as\nlong as the head has said "
            "(--link-grace, --head-grace); after that they end, and it ends with\nexit "
            "code 1, so that a service manager starts it anew. Before it has joined it "
            "waits for the\nhead without end, but a wrong secret ends it, and so does "
            "a node name that another still\nhas after half a minute. What happens is "
            "told on stderr; with --json on stdout, as one\nobject a line with `event` "
            "(joined, lost, back, ends, said) and `message`.",
        .example =
            "muster agent --head 10.0.0.1:7777 --secret-file secret --num-gpus 8",
        .options = OPT(HEAD) | OPT(SECRET_FILE) | OPT(NODE_NAME) | OPT(NUM_GPUS) |
                   OPT(NUM_CPUS) | OPT(GPU_MEMORY) | OPT(GPUS_PER_DOMAIN) |
                   OPT(DEVICE_KIND) | OPT(RESOURCE) | OPT(LABEL) | OPT(BIND) | STORE |
                   OPT(TLS) | OPT(JOIN_WITHIN) | OPT(END_WITH) | OPT(FD) |
                   OPT(SHAPE_FD) | OPT(READY_FD) | OPT(JSON),
        .run = ms_cmd_agent,
    },
    {
        .name = "complete",
        .operands = "WORD...",
        .summary = "what could stand for the last word (the shells' scripts ask this)",
        .hidden = true,
        .is_raw = true,
        .run = ms_cmd_complete,
    },
    {
        .name = "bridge",
        .summary = "carry what is asked of a Ray cluster (a job there runs this)",
        .hidden = true,
        .run = ms_cmd_bridge,
    },
    {
        .name = "hold",
        .operands = "PID DIR WORD...",
        .summary = "run a driver that ends with PID (`muster run` starts this)",
        .hidden = true,
        .is_raw = true,
        .run = ms_cmd_hold,
    },
    {
        .name = "host",
        .operands = "ID FILE NAME",
        .summary = "the head of one job, in a Ray job (`muster submit --on ray` starts "
                   "this)",
        .hidden = true,
        .is_raw = true,
        .run = ms_cmd_host,
    },
    {
        .name = "keep",
        .operands = "FD WORD...",
        .summary = "a head that is started again (`muster submit` starts this)",
        .hidden = true,
        .is_raw = true,
        .run = ms_cmd_keep,
    },
    {
        .name = "node-check",
        .summary = "check this node, with another one (an agent starts this)",
        .hidden = true,
        .run = ms_cmd_node_check,
    },
    {
        .name = "worker",
        .summary = "run classes of shared libraries (an agent starts this)",
        .hidden = true,
        .run = ms_cmd_worker,
    },
    {0},
};

const struct ms_cli_command *ms_cli_find(const char *name)
{
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
