//! Lines of the walls: bounds of what tenants, pods and clients can make the server and the node do.

use super::{Mutation, Suite};

const NOMINATIONS: &[&str] = &["--lib", "nominations::"];
const POLICIES: &[&str] = &["--lib", "policy::"];
const USAGES: &[&str] = &["--lib", "usage::"];
const TURNS: &[&str] = &["--lib", "turns::"];
const HEAVY_WORK: &[&str] = &["--lib", "heavy_work"];
const UNREAD: &[&str] = &["--test", "unread_watches"];
const UNREAD_ANSWERS: &[&str] = &["--test", "unread_answers"];
const UNREAD_MEMORY: &[&str] = &["--lib", "unread_memory"];
const UNREAD_WAITS: &[&str] = &["--test", "unread_waits"];
const ADDRESSES: &[&str] = &["--lib", "address::"];
const VOLUMES: &[&str] = &["--lib", "bounds::"];
const SUPERVISED: &[&str] = &["--lib", "supervise::"];
const CERTIFICATES: &[&str] = &["--lib"];
const DEFINITIONS: &[&str] = &["--test", "definitions"];
const SERVICE_SHARES: &[&str] = &["--test", "service_shares"];

pub(super) const SUITES: &[Suite] = &[
    Suite {
        package: "controllers-scheduler",
        folder: "controllers/scheduler/src",
        mutations: &[
            Mutation {
                name: "the node promised to a pod stays where preempting helps nowhere",
                file: "post_filter.rs",
                from: "if end.preemption.is_none() && end.nomination == Nomination::Cleared {",
                to: "if false {",
                proof: NOMINATIONS,
            },
            Mutation {
                name: "pods placed since a sample do not count",
                file: "usage.rs",
                from: "own.placed.push_back(PlacedPod {",
                to: "drop(PlacedPod {",
                proof: USAGES,
            },
            Mutation {
                name: "a policy passes the filters over",
                file: "algorithm/mod.rs",
                from: "let best = self.ranking.best(ranked, random).unwrap_or(feasible);",
                to: "let best = (0..nodes.rows()).collect::<Vec<_>>();",
                proof: POLICIES,
            },
            Mutation {
                name: "a namespace that comes late has all turns",
                file: "active.rs",
                from: "level.clock = charged;",
                to: "",
                proof: TURNS,
            },
            Mutation {
                name: "attempts are charged to no namespace",
                file: "scheduler.rs",
                from: "self.queue.charge(attempt.pod(), steps);",
                to: "",
                proof: TURNS,
            },
            Mutation {
                name: "a dear pod is decided about in the middle of a burst",
                file: "scheduler.rs",
                from: "if self.steps > 0 && self.is_heavy_next(now) {",
                to: "if false {",
                proof: TURNS,
            },
            Mutation {
                name: "terms of node affinity are tried with every node",
                file: "node_terms.rs",
                from: "labels.iter().find(|one| is_of_a_present_label(one))",
                to: "labels.iter().find(|_| false)",
                proof: TURNS,
            },
        ],
    },
    Suite {
        package: "machinery-runtime",
        folder: "machinery/runtime/src/heavy_work",
        mutations: &[
            Mutation {
                name: "heavy work is not charged to its namespace",
                file: "flow.rs",
                from: "self.debtors.push(Debtor::Namespace(namespace.into()));",
                to: "drop::<Arc<str>>(namespace.into());",
                proof: HEAVY_WORK,
            },
            Mutation {
                name: "heavy requests of one tenant wait without a bound",
                file: "turns.rs",
                from: "own >= MAX_WAITING_OF_FLOW || ",
                to: "",
                proof: HEAVY_WORK,
            },
            Mutation {
                name: "the reserved thread takes work of any debt",
                file: "turns.rs",
                from: "let is_reserve = self.running.len() >= self.for_all;",
                to: "let is_reserve = false;",
                proof: HEAVY_WORK,
            },
            Mutation {
                name: "heavy work of a client that left waits on",
                file: "mod.rs",
                from: "if before == Stage::Waiting {",
                to: "if before == Stage::Over {",
                proof: HEAVY_WORK,
            },
            Mutation {
                name: "heavy requests that await something else have no bound",
                file: "turns.rs",
                from: "own + resting >= MAX_BEGUN_OF_FLOW",
                to: "own + resting == usize::MAX",
                proof: HEAVY_WORK,
            },
            Mutation {
                name: "a heavy request that goes on counts as resting",
                file: "mod.rs",
                from: "state.stage = Stage::Waiting;\n                self.of.0.turns.lock().rests_no_longer(&self);",
                to: "state.stage = Stage::Waiting;",
                proof: HEAVY_WORK,
            },
            Mutation {
                name: "a heavy request that has gone counts on",
                file: "mod.rs",
                from: "if before == Stage::Resting {",
                to: "if before == Stage::Over {",
                proof: HEAVY_WORK,
            },
        ],
    },
    Suite {
        package: "apiserver-endpoints",
        folder: "apiserver/endpoints/src",
        mutations: &[
            Mutation {
                name: "unread watches of one owner hold any amount",
                file: "unread_memory/ledger.rs",
                from: "own > 0 && (own + more > self.of_owner",
                to: "own == usize::MAX && (own + more > self.of_owner",
                proof: UNREAD,
            },
            Mutation {
                name: "a watch that is read slowly counts as read",
                file: "unread_memory/holding.rs",
                from: "                since => since,\n",
                to: "                _ => now,\n",
                proof: UNREAD,
            },
            Mutation {
                name: "an answer that is read on counts as unread",
                file: "read_body.rs",
                from: "if self.read >= self.due {",
                to: "if self.read == usize::MAX {",
                proof: UNREAD_ANSWERS,
            },
            Mutation {
                name: "an unread answer has no end",
                file: "unread_memory/mod.rs",
                from: "            own.end_expired();\n",
                to: "",
                proof: UNREAD_ANSWERS,
            },
            Mutation {
                name: "the account that holds most of a namespace's share keeps it",
                file: "unread_memory/ledger.rs",
                from: "if gives_way { now } else { before }",
                to: "if gives_way { before } else { before }",
                proof: UNREAD_ANSWERS,
            },
            Mutation {
                name: "frames of a slow account's watches make its neighbours' wait",
                file: "unread_memory/ledger.rs",
                from: "let gives_way = !more.is_nothing() && ",
                to: "let gives_way = more.referred > 0 && ",
                proof: UNREAD_MEMORY,
            },
            Mutation {
                name: "who needs room looks at all unread answers",
                file: "unread_memory/account.rs",
                from: "const LOOKS: usize = 64;",
                to: "const LOOKS: usize = usize::MAX;",
                proof: UNREAD_MEMORY,
            },
            Mutation {
                name: "room that one owner gives back wakes all",
                file: "unread_memory/ledger.rs",
                from: "Some(spent) if !spent.is_of_owner =>",
                to: "Some(_) =>",
                proof: UNREAD_MEMORY,
            },
            Mutation {
                name: "answers in the stored form hold any number of versions",
                file: "unread_memory/mod.rs",
                from: "if bytes < COUNTED_BYTES {",
                to: "if bytes < usize::MAX {",
                proof: UNREAD_ANSWERS,
            },
            Mutation {
                name: "answers wait for room without a bound",
                file: "waiting_answers.rs",
                from: "let _place = self.place(ctx, bytes).ok_or_else(refused)?;",
                to: "let _place = self.place(ctx, bytes);",
                proof: UNREAD_WAITS,
            },
            Mutation {
                name: "answers wait for room after their clients have left",
                file: "waiting_answers.rs",
                from: "pin!(ctx.unawaited())",
                to: "pin!(future::pending::<()>())",
                proof: UNREAD_WAITS,
            },
            Mutation {
                name: "a dry run waits for the memory of its answer",
                file: "list_memory.rs",
                from: "if !is_done {",
                to: "if is_done && !is_done {",
                proof: UNREAD_ANSWERS,
            },
            Mutation {
                name: "an owner holds any amount of objects in unread answers",
                file: "unread_memory/ledger.rs",
                from: "|| REFERRED.is_spent(own.referred, self.held.referred, more.referred)",
                to: "",
                proof: UNREAD_MEMORY,
            },
            Mutation {
                name: "memory that is given back wakes all who wait",
                file: "memory_shares.rs",
                from: "let held = self.held(&waiting.user) + *own;",
                to: "waiting.woken.notify_one();\n            let held = self.held(&waiting.user) + *own;",
                proof: &["--lib", "memory_shares"],
            },
        ],
    },
    Suite {
        package: "apiserver-registry",
        folder: "apiserver/registry/src",
        mutations: &[
            Mutation {
                name: "a client that left after the first write is waited for",
                file: "engine/point_of_no_return.rs",
                from: "self.0.left.notify_waiters();",
                to: "",
                proof: &["--lib", "point_of_no_return"],
            },
            Mutation {
                name: "a stored definition of many versions cannot be changed",
                file: "kinds/apiextensions/custom_resource_definition/validation/versions.rs",
                from: "if versions > MAX_VERSIONS.max(known) {",
                to: "if versions > MAX_VERSIONS.max(known.min(0)) {",
                proof: DEFINITIONS,
            },
            Mutation {
                name: "a stored definition that breaks a rule cannot be deleted",
                file: "kinds/apiextensions/custom_resource_definition/mod.rs",
                from: ".parts(&[(\"finalize\", |new",
                to: ".parts(&[(\"nothing\", |new",
                proof: DEFINITIONS,
            },
            Mutation {
                name: "the cleanup of a definition tries each second",
                file: "custom/controller.rs",
                from: "failures += 1;",
                to: "failures = 1;",
                proof: DEFINITIONS,
            },
            Mutation {
                name: "one namespace takes all addresses and node ports",
                file: "kinds/core/service/shares.rs",
                from: "if taking.more == 0 || SYSTEM_NAMESPACES",
                to: "if taking.more < usize::MAX || SYSTEM_NAMESPACES",
                proof: SERVICE_SHARES,
            },
            Mutation {
                name: "a full range is walked on a thread of requests",
                file: "kinds/core/service/addresses.rs",
                from: "ctx.heavy().await?;",
                to: "",
                proof: SERVICE_SHARES,
            },
            Mutation {
                name: "a start forgets what nodes have written",
                file: "engine/store/node_growth/mod.rs",
                from: "self.recall_growth(ctx, node).await?;",
                to: "",
                proof: &["--test", "node_growth"],
            },
        ],
    },
    Suite {
        package: "apiserver-egress",
        folder: "apiserver/egress/src",
        mutations: &[
            Mutation {
                name: "an address of this link is reached",
                file: "address.rs",
                from: "v4.is_link_local() || ",
                to: "",
                proof: ADDRESSES,
            },
            Mutation {
                name: "an IPv4 address in the form of IPv6 is another one",
                file: "address.rs",
                from: "address.ip().to_canonical();",
                to: "address.ip();",
                proof: ADDRESSES,
            },
            Mutation {
                name: "the server's own service is reached",
                file: "address.rs",
                from: "is_service || (",
                to: "(is_service && ip.is_loopback()) || (",
                proof: ADDRESSES,
            },
        ],
    },
    Suite {
        package: "controllers-manager",
        folder: "controllers/manager/src",
        mutations: &[Mutation {
            name: "services without room for endpoints never rest",
            file: "endpoint_shares.rs",
            from: "if part.has < part.needs { steps } else { 0 }",
            to: "if part.has < part.needs { 0 * steps } else { 0 }",
            proof: &["--lib", "endpoint_shares"],
        }],
    },
    Suite {
        package: "controllers-manager",
        folder: "controllers/manager/src/garbage_collector",
        mutations: &[
            Mutation {
                name: "absent owners outlive a restore",
                file: "monitors.rs",
                from: "Box::new(move || own.absent.forget(&listed))",
                to: "Box::new(move || drop((own.absent.epoch(&[]), &listed)))",
                proof: &["--lib", "garbage_collector::looks"],
            },
            Mutation {
                name: "a look goes on with what was absent before a restore",
                file: "reconcile.rs",
                from: " && own.epoch == epoch =>",
                to: " =>",
                proof: &["--lib", "garbage_collector::looks"],
            },
        ],
    },
    Suite {
        package: "machinery-schema",
        folder: "machinery/schema/src/apply",
        mutations: &[Mutation {
            name: "a merge that cannot be read back is an empty document",
            file: "mod.rs",
            from: "let decoded = decode_json(&untyped_schema(), TypeId::ANY, json, Strictness::Ignore)?;",
            to: "let read = |json| decode_json(&untyped_schema(), TypeId::ANY, json, Strictness::Ignore);\n    let decoded = read(json).or_else(|_| read(b\"{}\"))?;",
            proof: &["--lib", "apply::"],
        }],
    },
    Suite {
        package: "machinery-x509",
        folder: "machinery/x509/src",
        mutations: &[
            Mutation {
                name: "excluded names count",
                file: "constraints.rs",
                from: "is_permitted && !of(&self.excluded).iter().any(fits)",
                to: "is_permitted",
                proof: CERTIFICATES,
            },
            Mutation {
                name: "a wildcard reaches into what is excluded",
                file: "constraints.rs",
                from: "&& !excluded.mail_domains.iter().any(covers_wildcard)",
                to: "&& (true || excluded.mail_domains.iter().any(covers_wildcard))",
                proof: CERTIFICATES,
            },
        ],
    },
    Suite {
        package: "node-volume",
        folder: "node/volume/src",
        mutations: &[
            Mutation {
                name: "ephemeral containers mount what they want",
                file: "bounds.rs",
                from: "own.chain(ephemeral.map(",
                to: "own.chain(ephemeral.take(0).map(",
                proof: VOLUMES,
            },
            Mutation {
                name: "projections of a pod have no bound",
                file: "bounds.rs",
                from: "projections(is_such).nth(most)",
                to: "projections(is_such).nth(most.max(usize::MAX))",
                proof: VOLUMES,
            },
        ],
    },
    Suite {
        package: "node-kubelet",
        folder: "node/kubelet/src",
        mutations: &[
            Mutation {
                name: "a sidecar whose turn comes late is killed at once",
                file: "containers/stopping.rs",
                from: "left(&self.runtime).max(GRACE_SECONDS_MIN)",
                to: "left(&self.runtime)",
                proof: &["--test", "simulation", "sidecar"],
            },
            Mutation {
                name: "ids of containers name containerd whatever the runtime",
                file: "pods/status.rs",
                from: "format!(\"{}://{}\", input.runtime_name, container.id)",
                to: "format!(\"containerd://{}\", container.id)",
                proof: &["--lib", "pods::tests"],
            },
        ],
    },
    Suite {
        package: "apiserver-server",
        folder: "apiserver/server/src",
        mutations: &[
            Mutation {
                name: "an audit event of a slow request does not say who took the time",
                file: "filters/authorization.rs",
                from: "latency.add(LatencyPart::Authorization, took)",
                to: "latency.add(LatencyPart::Authorization, took * 0)",
                proof: &["--test", "audit", "slow_request"],
            },
            Mutation {
                name: "a change whose client left before it was written is carried out",
                file: "filters/detach.rs",
                from: "self.task.abort();",
                to: "",
                proof: &["--test", "hostile", "heavy_request_whose_client_leaves"],
            },
            Mutation {
                name: "a silent client is never probed",
                file: "listener.rs",
                from: "keep_alive.set(&stream);",
                to: "",
                proof: &["--test", "hostile", "silent_connections"],
            },
            Mutation {
                name: "objects of a proxied service are read on a thread of requests",
                file: "kubelet/lookup.rs",
                from: "self.ctx.heavy_from(self.read, LARGE_BODY_BYTES).await",
                to: "self.ctx.heavy_from(self.read.min(0), LARGE_BODY_BYTES).await",
                proof: &["--lib", "service_endpoint"],
            },
            Mutation {
                name: "a list with a selector costs what it returns",
                file: "flow_control/work_estimate.rs",
                from: "limited.max(stats.count / 2)",
                to: "limited",
                proof: &["--lib", "work_estimate"],
            },
        ],
    },
    Suite {
        package: "apiserver-server",
        folder: "apiserver/admission/src/plugins/service_account",
        mutations: &[Mutation {
            name: "a large account is read on a thread of requests",
            file: "mod.rs",
            from: "heavy_from(found.json.len())",
            to: "heavy_from(found.json.len().min(0))",
            proof: &["--test", "hostile", "pod_of_a_large_account"],
        }],
    },
    Suite {
        package: "node-sys",
        folder: "node/sys/src",
        mutations: &[Mutation {
            name: "a pid file of any process is believed",
            file: "process.rs",
            from: "Self::of(self.pid).is_ok_and(|now| now == *self)",
            to: "Self::of(self.pid).is_ok()",
            proof: SUPERVISED,
        }],
    },
];
