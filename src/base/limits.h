/* limits.h - every limit has a name
 *
 * Lengths that come from outside are compared with these before memory is taken.
 */
#ifndef MS_BASE_LIMITS_H
#define MS_BASE_LIMITS_H

#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>

/* Wire */
#define MS_CHUNK_MAX        ((size_t)64 << 10)  /* body of one frame */
#define MS_DATA_MAX         ((size_t)1 << 20)   /* bytes of one DATA frame */
#define MS_MESSAGE_MAX      ((uint64_t)8 << 30) /* a whole call or reply */
#define MS_MESSAGE_ROOM_MIN ((size_t)4 << 10) /* for a big one that begins to arrive */
#define MS_START_STEPS_MAX  ((size_t)1 << 20) /* steps that travel with a start */
#define MS_CONTROL_MAX      ((uint64_t)16 << 20) /* a control message */
#define MS_REPLY_RETAIN_MAX ((uint64_t)1 << 30)  /* unacknowledged replies, a session */
#define MS_TLS_RECORDS_MAX  ((uint64_t)1 << 24)  /* until a key is renewed */
#define MS_SEND_QUEUE_MAX   ((uint64_t)16 << 30) /* unsent bytes on one connection */
#define MS_RESEND_MAX       ((uint64_t)1 << 20)  /* bigger calls are not sent twice */
#define MS_RETRY_MAX_NS     (100 * MS_NS_PER_MS) /* between two reconnects */
#define MS_METHOD_NAME_MAX  ((size_t)512)        /* "engine\0method" */
#define MS_ENGINE_NAME_MAX  ((size_t)256)        /* of that, the engine */
#define MS_METHODS_MAX      4096u                /* interned methods, a session */
#define MS_METHODS_TOLD     32u                  /* in an Activity: the most called */
#define MS_CHAIN_MAX        16u                  /* workers that wait on each other */
#define MS_STREAM_WINDOW    256u                 /* items sent before one is consumed */
#define MS_STREAM_KEPT_MAX  ((size_t)64 << 20)   /* bytes of a stream, to send again */
#define MS_HANDSHAKE_NS     (10 * MS_NS_PER_S)   /* connect until proven */
#define MS_LINK_GRACE_NS    (30 * MS_NS_PER_S)   /* a session without a connection */
#define MS_ANSWER_NS        (10 * MS_NS_PER_S)   /* for what is answered at once */
#define MS_EXIT_WAIT_NS     (5 * MS_NS_PER_S)    /* EOF until the reason is known */
#define MS_SEEK_NS          (5 * MS_NS_PER_S)    /* a successor is asked for again */
#define MS_CALL_TIMEOUT_NS  (7200 * MS_NS_PER_S) /* a call, unless told otherwise */
#define MS_SPIN_NS          (100 * MS_NS_PER_US) /* poll before blocking */
#define MS_BURST_NS         (500 * MS_NS_PER_US) /* calls in a row: until the loop reads */
#define MS_INBOX_READS_NS   (100 * MS_NS_PER_MS) /* then the loop reads in its place */
#define MS_TAKEOVER_TICK_NS (4 * MS_NS_PER_MS)   /* busy engine: the I/O thread reads */
#define MS_LONG_NS          (25 * MS_NS_PER_MS)  /* a call that is not a short one */
#define MS_PEERS_MAX        4096u                /* connections to one server */
#define MS_LISTENERS_MAX    16u                  /* of one server */
#define MS_UNPROVEN_MAX     256u /* of one listener: the oldest is cut */

/* Network */
#define MS_ADDRS_MAX     16u               /* entries of an address list */
#define MS_ADDR_LIST_MAX ((size_t)4096)    /* characters of one */
#define MS_HOST_MAX      ((size_t)253)     /* a host's name */
#define MS_CONNECT_NS    (2 * MS_NS_PER_S) /* a SYN until the next address is tried */
#define MS_PING_NS       (1 * MS_NS_PER_S) /* nothing sent until PING: calls */
#define MS_LINK_BEAT_NS  (2400 * MS_NS_PER_MS) /* between two heart-beats of a link */
#define MS_SUSPECT_NS    (3 * MS_NS_PER_S)     /* nothing heard until it is suspect */
#define MS_SUSPENDED_NS  (150 * MS_NS_PER_MS)  /* a check so late: we were suspended */
#define MS_PROBE_NS      (1 * MS_NS_PER_S)     /* suspect: between two fresh connects */
#define MS_LOOKUP_NS     (10 * MS_NS_PER_MS)   /* between two looks for a name */
#define MS_RESOLVERS_MAX 64u                   /* names that are looked up at once */

/* HTTP */
#define MS_HTTP_LINE_MAX        ((size_t)8 << 10)   /* request line, or one header */
#define MS_HTTP_HEAD_MAX        ((size_t)32 << 10)  /* request line and headers */
#define MS_HTTP_HEADERS_MAX     64u                 /* headers of one request */
#define MS_HTTP_CHUNK_LINE_MAX  ((size_t)256)       /* size and extension of a chunk */
#define MS_HTTP_BODY_MAX        ((uint64_t)1 << 30) /* of a request that may have one */
#define MS_HTTP_SMALL_MAX       ((uint64_t)1 << 20) /* where no more can be meant */
#define MS_HTTP_SECONDS_MAX     3600                /* a time in a request */
#define MS_HTTP_BACKLOG_MAX     ((size_t)256 << 10) /* unsent, or read ahead */
#define MS_HTTP_CONNS_MAX       4096u               /* of one server */
#define MS_HTTP_UNPROVEN_MAX    128u /* of these, without a token: the oldest is cut */
#define MS_HTTP_IDLE_NS         (75 * MS_NS_PER_S) /* between two requests */
#define MS_HTTP_HEAD_NS         (10 * MS_NS_PER_S) /* first byte until the head is whole */
#define MS_HTTP_SEND_NS         (30 * MS_NS_PER_S) /* a client that takes nothing */
#define MS_HTTP_LINGER_NS       (1 * MS_NS_PER_S)  /* for a refused client to hear it */
#define MS_HTTP_RATE_MIN        ((uint64_t)64 << 10) /* bytes a second of a body */
#define MS_HTTP_TENSORS_MAX     (1u << 20)           /* tensors kept for others */
#define MS_HTTP_TENSOR_ID_MAX   256u                 /* characters */
#define MS_HTTP_TENSOR_SMALL    ((size_t)64 << 10) /* bytes; others are in the store */
#define MS_HTTP_TENSORS_OWN_MAX ((uint64_t)256 << 20) /* of all that are not */
#define MS_HTTP_PUT_MAX         ((uint64_t)1 << 40) /* bytes of a tensor that is PUT */
#define MS_HTTP_PIECE_MIN       ((uint64_t)1536 << 10) /* of it in one object: as much as */
#define MS_HTTP_PIECE_MAX       ((uint64_t)15 << 20) /* has arrived, between these */
#define MS_HTTP_ROOM_NS         (60 * MS_NS_PER_S) /* until pieces of others are left */
#define MS_HTTP_FULL_NS         (2 * MS_NS_PER_S)  /* a full store is asked again */
#define MS_HTTP_TENSOR_LEASE_NS (6 * 3600 * MS_NS_PER_S) /* one that nobody asks for */

/* Plain data */
#define MS_PLAIN_DEPTH_MAX 64u                /* containers within each other */
#define MS_PLAIN_NODES_MAX ((size_t)4 << 20)  /* values of one message */
#define MS_PLAIN_DIMS_MAX  16u                /* of a tensor */
#define MS_PLAIN_REFS_MAX  16                 /* parts that are sent without a copy */
#define MS_PLAIN_REF_MIN   ((size_t)16 << 10) /* smaller ones are copied */

/* Store */
#define MS_STORE_LEASE_NS    (120 * MS_NS_PER_S)   /* a grant until it is confirmed */
#define MS_STORE_MESSAGE_MAX ((size_t)128 << 10)   /* on the store's socket */
#define MS_STORE_NAMES_MAX   512u                  /* objects of one message */
#define MS_STORE_PRIVATE_MAX 8192u                 /* private maps of one process */
#define MS_STORE_OBJECT_MAX  ((uint64_t)1 << 46)   /* bytes of one object */
#define MS_STORE_IDLE_NS     (30 * MS_NS_PER_S)    /* unused memory until given back */
#define MS_STORE_SPARE_MIN   ((uint64_t)256 << 20) /* memory that the machine keeps */
#define MS_STORE_SPARE_HERE  ((uint64_t)64 << 20)  /* and its container */
#define MS_STORE_CLIENTS_MAX 8192u                 /* processes of one store */
#define MS_STORE_PIECE_MAX   ((uint64_t)MS_DATA_MAX) /* of an object, between nodes */
#define MS_STORE_PIECES      6u                      /* asked for at a time */
#define MS_STORE_STALL_NS    (2 * MS_NS_PER_S) /* a node that hands on is passed over */
#define MS_STORE_SLOW_MIN    ((uint64_t)1 << 20) /* if less comes of it in that time */
#define MS_PACE_LOOK_NS      (4 * MS_NS_PER_MS)  /* between two looks at a bulk link */
#define MS_PACE_IDLE_LOOKS   50u                 /* without a send: no more are made */
#define MS_STORE_SHOWN_MAX   1000u               /* objects of one node */
#define MS_STORE_SHOW_NS     (3 * MS_NS_PER_S)   /* until a node is left out */
#define MS_STORE_RESTING_MAX ((uint64_t)8 << 20) /* unread, before the agent is told */
#define MS_SPARE_MAX         ((uint64_t)1 << 30) /* memory that a process keeps to use again */
#define MS_SPARE_MIN         ((size_t)2 << 20) /* smaller columns are not worth it */
#define MS_SPILL_MIN         ((uint64_t)256 << 10) /* smaller objects stay in memory */
#define MS_SPILL_CHUNK       ((size_t)4 << 20)     /* written or read at a time */
#define MS_SPILL_WAIT_NS     (300 * MS_NS_PER_S)   /* for room, while a disk works */
#define MS_STORE_ANSWER_NS   (60 * MS_NS_PER_S)    /* of an agent that is alive */
#define MS_STORE_OUTBOX_MAX  65536u /* messages for one that does not read */

/* Heap (base/heap.h) */
#define MS_HEAP_MAP_MIN  (32 << 20) /* bigger allocations are the kernel's; its most */
#define MS_HEAP_KEEP_MAX (64 << 20) /* freed, and kept to use again */

/* Names and paths */
#define MS_NAME_MAX        ((size_t)64)  /* cluster, node, session */
#define MS_SOCKET_PATH_MAX ((size_t)107) /* sun_path without its NUL */

/* Head */
#define MS_CLUSTER_WORKERS_MAX 65536u              /* workers of one head */
#define MS_FORMER_MAX          16u                 /* dead incarnations known by uid */
#define MS_START_NS            (120 * MS_NS_PER_S) /* a cluster's processes, at most */
#define MS_START_SLACK_NS      (10 * MS_NS_PER_S) /* beyond the time of a constructor */
#define MS_STEP_MAX            ((size_t)4 << 20) /* what one step of a cluster is given */
#define MS_SPEC_MAX            ((size_t)12 << 20)  /* all that its workers start with */
#define MS_META_MAX            ((size_t)4 << 20)   /* what a driver says of a cluster */
#define MS_NODES_MAX           4096u               /* agents of one head */
#define MS_DRIVERS_MAX         1024u               /* drivers of one head */
#define MS_HEAD_GRACE_NS       (300 * MS_NS_PER_S) /* without a daemon head */
#define MS_RECOVERY_NS         (10 * MS_NS_PER_S)  /* a new head waits for old agents */
#define MS_REDIAL_MIN_NS       (50 * MS_NS_PER_MS) /* between two attempts, first */
#define MS_REDIAL_MAX_NS       (1 * MS_NS_PER_S)   /* and at last */

/* Key-value store and barriers of a head */
#define MS_KV_KEY_MAX       ((size_t)512)        /* characters of a key */
#define MS_KV_VALUE_MAX     ((size_t)4 << 20)    /* bytes of a value */
#define MS_KV_ENTRIES_MAX   65536u               /* entries of one head */
#define MS_KV_BYTES_MAX     ((size_t)256 << 20)  /* of all keys and values */
#define MS_KV_HISTORY_MAX   4096u                /* changes that a watcher may miss */
#define MS_KV_HISTORY_BYTES ((size_t)16 << 20)   /* of their values */
#define MS_KV_ANSWER_MAX    ((size_t)8 << 20)    /* bytes of entries in one answer */
#define MS_KV_WAIT_NS       (600 * MS_NS_PER_S)  /* one question; it is asked again */
#define MS_BARRIER_NAME_MAX ((size_t)128)        /* characters of a barrier's name */
#define MS_BARRIER_WAIT_NS  (7200 * MS_NS_PER_S) /* unless told otherwise */

/* rendezvous and data shards (src/job) */
#define MS_RENDEZVOUS_MEMBERS_MAX 4096u         /* of a world */
#define MS_RENDEZVOUS_KEY_MAX     ((size_t)256) /* characters of a member's key */
#define MS_RENDEZVOUS_DATA_MAX    ((size_t)4096) /* bytes that a member tells the others */
#define MS_RENDEZVOUS_JOIN_NS     (86400 * MS_NS_PER_S) /* the longest time to join */
#define MS_RENDEZVOUS_CLOSED_NS   (30 * MS_NS_PER_S)    /* a closed one is remembered */
#define MS_RENDEZVOUS_MAX         1024u                 /* of one head */
#define MS_SHARDS_OPEN_MAX        65536u /* shards of a queue that are out or came back */
#define MS_SHARDS_REASON_MAX      ((size_t)256)     /* bytes of why a shard failed */
#define MS_SHARDS_TAKE_MAX        1024u             /* shards of one answer */
#define MS_SHARD_QUEUES_MAX       1024u             /* of one head */
#define MS_SHARDS_HOLD_NS         (5 * MS_NS_PER_S) /* an answer, until it is kept */
#define MS_SHARDS_RETRY_NS        (1 * MS_NS_PER_S) /* a journal that cannot be written */
#define MS_NODE_CHECK_MAX         4096u /* nodes that are checked together */

/* Agent */
#define MS_WORKERS_MAX       4096u /* workers of one agent */
#define MS_LAST_BEFORE_CRASH 5u    /* of these, lines before the stack of a crash */
#define MS_LAST_LINES        20u   /* kept for error reports, a worker */
#define MS_LOG_LINE_MAX      ((size_t)16 << 10)    /* longer ones are cut into pieces */
#define MS_LOG_FILE_MAX      ((uint64_t)256 << 20) /* then the file is rotated once */
#define MS_LOG_BACKLOG_MAX   ((size_t)4 << 20) /* unsent to the head: drop and count */
#define MS_SPAWN_MAX         ((size_t)192 << 10) /* one start request to a zygote */
#define MS_LAST_LINE_MAX     ((size_t)1 << 10)   /* of each of the last lines */
#define MS_LOG_READ_MAX      ((size_t)64 << 10)  /* read from one pipe in one wake-up */
#define MS_LOG_DRAIN_MAX     ((size_t)1 << 20)   /* read from a dead worker's pipe */
#define MS_LOG_BATCH_MAX     ((size_t)256 << 10) /* lines sent to the head together */
#define MS_LOG_PIECE_MAX     ((size_t)256 << 10) /* of a file, read for another machine */
#define MS_LOG_BACK_MAX      ((size_t)16 << 20) /* looked through for its last lines */
#define MS_LOG_WAITERS_MAX   ((size_t)4096)     /* questions that an agent holds */
#define MS_HOLD_MAX_NS       (60 * MS_NS_PER_S) /* a question is held, at most */
#define MS_LOG_BATCH_NS      (5 * MS_NS_PER_MS) /* first line until they are sent */
#define MS_LOG_PROGRESS_NS                                                             \
    (1 * MS_NS_PER_S)             /* between shown states of a progress bar */
#define MS_EXITS_KEPT       1024u /* ends that are remembered */
#define MS_EXITS_LINES_KEPT 32u   /* of those, with their last lines */
#define MS_ZYGOTES_MAX      32u   /* of one agent; then workers are executed */
#define MS_STOP_GRACE_NS    (3 * MS_NS_PER_S)    /* SIGTERM until SIGKILL */
#define MS_END_NS           (2 * MS_NS_PER_S)    /* SIGKILL until we no longer wait */
#define MS_DETACHED_NS      (500 * MS_NS_PER_MS) /* link closed until it is killed */
#define MS_SUPERVISOR_NS    (4 * MS_NS_PER_S)    /* for an agent that is to end */
#define MS_SUPERVISOR_SWEEP_NS                                                         \
    (500 * MS_NS_PER_MS) /* until a new one looks for what others have left */
#define MS_SWEEP_AGAIN_NS  (5 * MS_NS_PER_MS) /* an orphan within an exec */
#define MS_ZYGOTE_START_NS (60 * MS_NS_PER_S) /* imports until ready */
#define MS_ZYGOTE_ANSWER_NS                                                            \
    (5 * MS_NS_PER_S) /* of silence, twice, until it is killed */
#define MS_ZYGOTE_IDLE_NS    (600 * MS_NS_PER_S)  /* without a driver, until it ends */
#define MS_AGENT_START_NS    (30 * MS_NS_PER_S)   /* exec until ready */
#define MS_PORTS_MAX         1024u                /* ports held by one process */
#define MS_STACK_THREAD_NS   (300 * MS_NS_PER_MS) /* a thread's time to show its stack */
#define MS_STACK_THREADS_MAX 512u
#define MS_DEBUG_WHERE_MAX   512u              /* of a place, and of a client's name */
#define MS_DEBUG_OUTPUT_MAX  ((size_t)1 << 20) /* of a debugger, not yet read */
#define MS_DEBUG_HOLD_NS     (5 * MS_NS_PER_S) /* a client's question, at most */
#define MS_DEBUG_LEASE_NS    (2 * MS_NS_PER_S) /* without one until it is gone */
#define MS_ACTIVITY_NS       (500 * MS_NS_PER_MS) /* for a worker to say what it does */
#define MS_ACTIVITY_STACKS_NS                                                          \
    (4 * MS_NS_PER_S) /* the same, with the stacks of its threads */
#define MS_DEVICE_MEMORY_OLD_NS                                                        \
    (10 * MS_NS_PER_S) /* what was read of devices is shown, and a reading may take */
#define MS_ACTIVITY_NODE_NS (2 * MS_NS_PER_S) /* and for a node, with all of its own */
#define MS_SESSIONS_KEPT    16u               /* log folders of ended sessions... */
#define MS_SESSIONS_KEPT_SIZE                                                          \
    ((uint64_t)4 << 30) /* ...of this size together, but for the newest... */
#define MS_SESSIONS_KEPT_AGE_NS                                                        \
    (14 * 86400 * MS_NS_PER_S) /* ...and since their last line */

/* Agents that one head starts on its own machine. */
enum { MS_NODES_HERE_MAX = 256 };

#endif
